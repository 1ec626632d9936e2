"""STOMP 1.2 frames on the wire, byte for byte.

stomp.py cuts a text at its first NUL, and takes a regular expression to each header line. This reader takes every complete frame of a read at once, keeps
names and values escaped until somebody asks for them, and knows where a text ends.

Where a body ends is not easy to know. ActiveMQ sends a text without its length, even where it holds NULs; and it lets a JMS producer set a property
`content-length`, which then stands in the frame. So a body has ended only if a frame follows: a RECEIPT, an ERROR, or a MESSAGE for a subscription of ours
(whose id begins with `mark`, which nobody else knows). Anything else that follows a NUL still belongs to the body, and a length that reaches into the next
frame is no length. Where no frame follows, heartbeats tell: ActiveMQ sends them between frames only. A text without NULs has ended where nothing follows;
one with NULs may go on behind any of them, and its reader is `unsure`: then somebody should ask ActiveMQ for a frame. (Only a text whose first NUL stands
before an end of line, right where the network cuts it, is taken for one without NULs.)

Nor is it easy to know where a head ends: ActiveMQ escapes no names, and a JMS producer may have any. So the head of a MESSAGE has ended only if it has
what ActiveMQ says in each one. Then a line of it that is no header tells that a name had an end of line in it: the frame is `broken`.
"""

from __future__ import annotations

from typing import NamedTuple

MESSAGE, RECEIPT, ERROR, CONNECTED = b"MESSAGE", b"RECEIPT", b"ERROR", b"CONNECTED"
_KNOWN = frozenset((MESSAGE, RECEIPT, ERROR, CONNECTED))
_COMMANDS = tuple(command + b"\n" for command in _KNOWN)
_LONGEST_COMMAND = max(map(len, _COMMANDS))
_ALWAYS = frozenset((b"destination", b"message-id", b"subscription", b"ack", b"expires", b"priority", b"timestamp"))
"""What the head of each MESSAGE has for a subscription with acknowledgements."""
_EOL = b"\r\n"
_LENGTH_DIGITS = 10
"""Java's arrays are no longer."""
_HEARTBEAT = b"\n"
_SILENCE = 2
"""Reads of nothing but a heartbeat, one after the other; the first may have been the end of a frame."""


class ProtocolError(Exception):
    """The broker does not speak STOMP as we know it."""


class Frame(NamedTuple):
    """One frame. Names and values of headers are still escaped. `sized`: it came with its length, so the body is bytes.

    `broken`: a header's name had an end of line in it, so it stands here in pieces, the last one maybe in the body.
    """

    command: bytes
    headers: dict[bytes, bytes]
    body: bytes
    sized: bool
    broken: bool = False

    def text(self, name: bytes) -> str:
        """A header as text, empty where it is missing."""
        return unescaped(self.headers.get(name, b"")).decode(errors="replace")


class Reader:
    """Cuts what comes from the socket into frames."""

    def __init__(self, mark: bytes) -> None:
        self._mark = b"\nsubscription:" + mark
        self._buffer = bytearray()
        self._seen = 0  # up to here there is no end of the body that is being waited for
        self._silence = 0
        self.unsure = False  # a text is being waited for that holds NULs: it may be here

    def feed(self, data: bytes) -> list[Frame]:
        """All frames that are complete now. Raises ProtocolError."""
        buffer = self._buffer
        buffer += data
        self._silence = self._silence + 1 if data == _HEARTBEAT else 0
        frames: list[Frame] = []
        at = 0
        while (found := self._frame(at)) is not None:
            frame, at = found
            self._seen, self.unsure = 0, False
            frames.append(frame)
        if at:
            del buffer[:at]
            self._seen = max(0, self._seen - at)
        return frames

    def _frame(self, at: int) -> tuple[Frame, int] | None:
        buffer = self._buffer
        at = self._skip(at)
        head_end = buffer.find(b"\n\n", at)
        if head_end < 0:
            self._check(at)
            return None
        command, *lines = bytes(buffer[at:head_end]).split(b"\n")
        if command not in _KNOWN:
            raise ProtocolError(f"no frame begins with {command!r:.100}")
        headers, broken = _headers(lines)
        if command == MESSAGE and not headers.keys() >= _ALWAYS:
            head_end = self._late_end(at, head_end)
            if head_end < 0:
                return None
            headers, broken = _headers(bytes(buffer[at:head_end]).split(b"\n")[1:])
        start = head_end + 2
        length = headers.get(b"content-length", b"")
        end = self._sized_end(start, int(length)) if length.isdigit() and len(length) <= _LENGTH_DIGITS else -1
        sized = end >= 0
        if end == -1:
            end = self._text_end(start)
        if end < 0:
            return None
        return Frame(command, headers, bytes(memoryview(buffer)[start:end]), sized, broken), end + 1

    def _late_end(self, at: int, blank: int) -> int:
        """Where the head of a MESSAGE ends that lacks something at its first blank line, which it may have behind that; -1 if its end is not here yet."""
        buffer = self._buffer
        frame_end = buffer.find(b"\0", blank)
        last = frame_end if frame_end >= 0 else len(buffer)
        places = [buffer.find(self._mark, at, last), *(buffer.find(b"\n%b:" % name, at, last) for name in _ALWAYS)]
        if -1 not in places:
            return buffer.find(b"\n\n", max(places))
        return blank if frame_end >= 0 else -1

    def _check(self, at: int) -> None:
        """Raise ProtocolError where no frame begins."""
        begin = bytes(self._buffer[at : at + _LONGEST_COMMAND])
        if not any(command.startswith(begin) or begin.startswith(command) for command in _COMMANDS):
            raise ProtocolError(f"no frame begins with {begin!r}")

    def _skip(self, at: int) -> int:
        """Step over heartbeats."""
        buffer, size = self._buffer, len(self._buffer)
        while at < size and buffer[at] in _EOL:
            at += 1
        return at

    def _sized_end(self, start: int, length: int) -> int:
        """Where a body of that length ends; -1 if that cannot be its length, -2 if its end is not here yet."""
        end, buffer = start + length, self._buffer
        if end < len(buffer):
            wrong = buffer[end] != 0 or buffer.find(self._mark, start, end) >= 0
        else:
            wrong = self._silence >= _SILENCE or buffer.find(self._mark, max(start, self._seen)) >= 0
            end = -2
        if wrong:
            self._seen = 0  # what was seen was no end of that length, but may be one of a text
            return -1
        if end >= 0:
            return end
        self._seen = max(start, len(buffer) - len(self._mark))
        return -2

    def _text_end(self, start: int) -> int:
        """Where a body without a length ends; -2 where it is not here yet."""
        buffer, at = self._buffer, max(start, self._seen)
        while (at := buffer.find(b"\0", at)) >= 0:
            follows = self._follows(at + 1)
            if follows is None:
                self._seen = at
                return -2
            if follows:
                return at
            self.unsure = True
            at += 1
        self._seen = len(buffer)
        return -2

    def _follows(self, at: int) -> bool | None:
        """Whether the frame has ended before `at`: there is an end of line, and then another frame, or nothing more. None: not known yet."""
        buffer = self._buffer
        if at >= len(buffer):
            return None
        start = self._skip(at)
        if start == at:
            return False
        if start == len(buffer):
            return None if self.unsure and self._silence < _SILENCE else True
        begin = bytes(buffer[start : start + _LONGEST_COMMAND])
        if begin.startswith(MESSAGE + b"\n"):
            end = buffer.find(b"\n\n", start)
            if end >= 0 and buffer.find(self._mark, start, end) < 0:
                end = self._late_end(start, end)
            return None if end < 0 else self._is_ours(bytes(buffer[start : end + 1]))
        if begin.startswith(_COMMANDS):
            return True
        return None if any(command.startswith(begin) for command in _COMMANDS) else False

    def _is_ours(self, head: bytes) -> bool:
        """Whether this is the head of one MESSAGE for our subscription, not a piece of text and then such a head.

        Its lines need not all be headers: ActiveMQ escapes no names, and a JMS producer may have an end of line in the name of a property.
        """
        return self._mark in head and b"\0\nMESSAGE\n" not in head


def _headers(lines: list[bytes]) -> tuple[dict[bytes, bytes], bool]:
    """The headers in these lines, and whether any line is none. Of repeated headers the first counts."""
    headers: dict[bytes, bytes] = {}
    broken = False
    for line in lines:
        name, colon, value = line.partition(b":")
        broken |= not colon
        if name not in headers:
            headers[name] = value
    return headers, broken


_ESCAPES = ((b"\\", b"\\\\"), (b"\r", b"\\r"), (b"\n", b"\\n"), (b":", b"\\c"))
_UNESCAPES = {ord("r"): b"\r", ord("n"): b"\n", ord("c"): b":", ord("\\"): b"\\"}


def escaped(raw: bytes) -> bytes:
    """A header's name or value as it stands in a frame. NUL has no escape and must not be in it."""
    for plain, escape in _ESCAPES:
        if plain in raw:
            raw = raw.replace(plain, escape)
    return raw


def unescaped(raw: bytes) -> bytes:
    """The name or value that was escaped. Raises ProtocolError where STOMP knows no such escape."""
    if b"\\" not in raw:
        return raw
    first, *parts = raw.split(b"\\")
    out = [first]
    parts.reverse()
    while parts:
        part = parts.pop()
        if part:
            char = _UNESCAPES.get(part[0])
            if char is None:
                raise ProtocolError(f"a header holds an unknown escape: {raw!r:.100}")
            out += (char, part[1:])
        else:  # an escaped backslash: the split took both
            if not parts:
                raise ProtocolError(f"a header ends in an escape: {raw!r:.100}")
            out += (b"\\", parts.pop())
    return b"".join(out)


def frame(command: bytes, *headers: tuple[bytes, bytes], body: bytes = b"") -> bytes:
    """A frame, ready to send. `body` is a text without a NUL."""
    lines = [b"%s:%s\n" % (name, escaped(value)) for name, value in headers]
    return b"".join((command, b"\n", *lines, b"\n", body, b"\0"))
