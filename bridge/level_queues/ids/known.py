"""What the log of ids says: which messages wait under an id, and which of them were cancelled or replaced. Nothing here knows a broker or a thread.

The order of the log decides, no clock. A message whose id may be asked for *claims* the id before it goes to its level: it writes a line, and bears the place
of that line with it. It is ended by what the log says of the id after that: a *cancel* cancels it, another claim replaces it. A cancel that finds no message
may wait for the next claim. (The lines: see lines.py.)

A message that its source gives again claims again under its mark, and keeps its first place: what was decided about it stands, and of its copies only the
last one is delivered. A cancel that is given again keeps its first place, too, and is not repeated once it has done its work: it must not cancel what was
sent after it.

Which copy is the last? A bridge that stood still may claim a message after the one that has it now, and then cannot take it in any more. So where a source can
tell that, a claim has a *term*, a fencing token: who got the message later has a higher one (see `register.Register`), and the claim with the highest term
counts, wherever it stands. Without a term it is -1, and the order of the log decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from ....adapters.id_log import Line
from .endings import Ended, Endings
from .lines import CANCEL, CLAIM, DECIDED, DUE, FATE, HEAD, Claim, Decision, fated, kept, over, said, spent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ....core.ledger import Event
    from .lines import Said

Fate = Decision | tuple[Literal["over"], int]
"""Why the holder of a message must not deliver it. `over`: another bridge has ended it, and told the ledger."""


class Word(NamedTuple):
    """One claim or one cancel, in the order of the log.

    place   where it stands first; `last`, where it stands last
    at      when it was made
    until   of a claim, when its message is due; of a cancel, how long it waits for a message, 0 where it does not
    term    of a claim
    fate    what ended a claim's message, where that is gone from the log, or was there before this claim
    """

    cancel: bool
    mark: bytes
    place: int
    at: int
    until: int
    last: int
    term: int = -1
    fate: Decision | None = None


class Ids:
    """What all lines before place `read` say. Not safe for several threads.

    While a message bears an id, that costs one entry of bytes, which are read when somebody asks.
    """

    def __init__(self) -> None:
        self.read = 0
        self._lines: dict[bytes, tuple[bytes, ...]] = {}
        self._endings = Endings()

    def __len__(self) -> int:
        return len(self._lines)

    def apply(self, place: int, line: Line) -> list[Line]:
        """Apply the next line; returns lines to append.

        These are keys that are done with, the fate of a copy whose original has ended, and what stands although this line is the last of its key: a reader
        to whom the broker gives only that one must know, too.
        """
        head, id_ = line.key[:HEAD], line.key[HEAD:]
        if line.value is None:
            return self._forget(place, head, id_, line.note)
        if head[:1] == CANCEL and self._endings.spent(id_, head[1:]):
            return [Line(line.key, None)]  # whoever took it in again had not read so far
        new, known = kept(line, place), self._lines.get(id_, ())
        before = next((each for each in known if each[:HEAD] == head), None)
        if before is not None and head[:1] in (CLAIM, CANCEL):
            earlier, later = said(before), said(new)
            if head[:1] == CANCEL or 0 <= later.term < earlier.term:
                return [] if (later.first, later.term) == (earlier.first, earlier.term) else [earlier.again(id_)]
            new = later._replace(first=earlier.first).kept()
        others = tuple(each for each in known if each is not before)
        if head[:1] in (DUE, FATE) and all(each[:HEAD] != CLAIM + head[1:] for each in others):
            return [Line(line.key, None)]  # its message has ended meanwhile
        self._lines[id_] = (*others, new)
        if head[:1] == CANCEL and self.target(id_.decode(), said(new).first)[1] is not None:
            self._endings.late(id_, head[1:])
        return self._copied(place, head, id_)

    def _copied(self, place: int, head: bytes, id_: bytes) -> list[Line]:
        """Tell a copy its fate. It is one if its message has ended and claims its id again: the bridge that took it in again had not read the end."""
        ended = self._endings.of(id_, head[1:]) if head[:1] == CLAIM else None
        if ended is None:
            return []
        fate = fated(id_.decode(), head[1:], ("replaced", ended.at))
        self.apply(place, fate)
        return [fate]

    def _forget(self, place: int, head: bytes, id_: bytes, note: bytes) -> list[Line]:
        known, gone = self._lines.get(id_, ()), {head}
        if head[:1] == CLAIM:
            words, mark = _words(known), head[1:]
            gone |= {CANCEL + word.mark for word in words if word.cancel and [each.mark for each in _targets(words, word)] == [mark]}
            gone |= {each[:HEAD] for each in known if each[1:HEAD] == mark}
            if note:
                event, at, claimed = note.decode().split(" ")
                self._endings.message(id_, Ended(cast("Event", event), int(at), place, Claim(mark, int(claimed))))
        for each in gone:
            if each[:1] == CANCEL:
                self._endings.cancel(id_, each[1:])
        left = tuple(each for each in known if each[:HEAD] not in gone)
        if left:
            self._lines[id_] = left
        else:
            self._lines.pop(id_, None)
        return [Line(each[:HEAD] + id_, None) for each in known if each[:HEAD] in gone - {head}]

    def words(self, id: str) -> list[Word]:  # noqa: A002 - the field's own word
        """The claims and cancels of an id, in the order of the log."""
        return _words(self._lines.get(id.encode(), ()))

    def target(self, id: str, place: int) -> tuple[Word | None, Decision | None]:  # noqa: A002 - the field's own word
        """The message that a cancel at this place is for, and what stood there before that ends it."""
        words = [word for word in self.words(id) if word.place < place]
        target = next((word for word in reversed(words) if not word.cancel and word.fate is None), None)
        return target, None if target is None else fate_of(words, target)

    def was_late(self, id: str, mark: bytes) -> bool:  # noqa: A002 - the field's own word
        """Whether this cancel came behind another one for the same message, as far as is remembered."""
        return self._endings.was_late(id.encode(), mark)

    def ended(self, id: str) -> Ended | None:  # noqa: A002 - the field's own word
        """How the last that bore it ended, where that is remembered."""
        return self._endings.last(id.encode())

    def has_ended(self, id: str, mark: bytes) -> bool:  # noqa: A002 - the field's own word
        """Whether this very message has come to its end, or this cancel has done its work, as far as is remembered."""
        return self._endings.of(id.encode(), mark) is not None or self._endings.spent(id.encode(), mark)

    def fate(self, id: str, claim: Claim) -> Fate | None:  # noqa: A002 - the field's own word
        """Why this message must not be delivered, None where it may. Of one that the log does not know (any more) nothing is said: it may.

        So may one that somebody has delivered already and the broker gives again: what was to follow, as a dead letter, may not have been confirmed.
        """
        words = self.words(id)
        own = said_by(words, claim.mark)
        if own is not None:
            return _copy(claim, own.at) if _outdone(claim, own) else fate_of(words, own)
        ended = self._endings.of(id.encode(), claim.mark)
        if ended is None:
            return None
        if ended.claim.place != claim.place:
            return _copy(claim, ended.at)  # the other one has ended
        return ("over", ended.at) if ended.event in DECIDED else None

    def contested(self, id: bytes) -> bool:  # noqa: A002 - the field's own word
        """Whether the log says more of this id than that one message has claimed it."""
        return len(self._lines.get(id, ())) > 1

    def ending(self, id: str, claim: Claim, event: Event | None, now: int) -> list[Line]:  # noqa: A002 - the field's own word
        """What to append, in order, when a message has come to its end. Without an event: it has left these level queues.

        A message that it replaced may still wait somewhere, and must know its fate by itself from now on. A cancel that was for this message only has done
        its work, and must not meet the next one. Where a copy of it is still there, that one goes on; but not where this one was delivered, or ended
        otherwise, before its bridge knew of the copy.
        """
        words = self.words(id)
        own = said_by(words, claim.mark)
        lines: list[Line] = []
        if own is not None and _outdone(claim, own) and event in (None, *DECIDED):
            return lines
        if own is not None:
            older = [word for word in words if not word.cancel and word.place < own.place and word.fate is None]
            lines += (fated(id, word.mark, fate) for word in older if (fate := fate_of(words, word)) is not None)
            lines += (spent(id, word.mark) for word in words if word.cancel and _targets(words, word) == [own])
        kinds = {each[:1] for each in self._lines.get(id.encode(), ()) if each[1:HEAD] == claim.mark}
        lines += (Line(kind + claim.mark + id.encode(), None) for kind in (DUE, FATE) if kind in kinds)
        return [*lines, over(id, claim.mark, f"{event} {now} {claim.place}" if event else "")]

    def outdated(self, now: int, most: int) -> Iterator[Line]:
        """Lines that nobody needs: of messages overdue by more than `most` ms, which no level can hold any more, and of cancels that waited in vain."""
        for id_, lines in list(self._lines.items()):
            words = _words(lines)
            old = {
                word.mark
                for word in words
                if word.until < (now if word.cancel else now - most) and not (word.cancel and _targets(words, word))
            }
            yield from (Line(each[:HEAD] + id_, None) for each in lines if each[1:HEAD] in old)


def said_by(words: Sequence[Word], mark: bytes) -> Word | None:
    """The claim of one message, or one cancel, by its mark; None where the log does not have it (any more)."""
    return next((word for word in words if word.mark == mark), None)


def _outdone(claim: Claim, own: Word) -> bool:
    """Whether another claim of the same message counts instead of this one. In one term a message claims once."""
    return claim.term < own.term or (claim.term == own.term == -1 and claim.place < own.last)


def _copy(claim: Claim, at: int) -> Fate:
    """What ends one of two copies of a message."""
    return ("over", at) if claim.moved else ("replaced", at)


def fate_of(words: Sequence[Word], own: Word) -> Decision | None:
    """What ends a message, by all claims and cancels of its id."""
    if own.fate is not None:
        return own.fate
    for word in words:
        if word.place > own.place and (word.cancel or word.fate is None):  # else it was a copy when it claimed, or is as good as gone
            return ("cancelled" if word.cancel else "replaced"), word.at
        if word.cancel and _targets(words, word) == [own]:
            return "cancelled", own.at
    return None


def _targets(words: Sequence[Word], cancel: Word) -> list[Word]:
    """The messages that a cancel is for: those that claimed the id before it; if there are none, the next one, if it comes in time."""
    older = [word for word in words if not word.cancel and word.place < cancel.place]
    if older:
        return older
    following = next((word for word in words if not word.cancel), None)
    return [following] if following is not None and following.at <= cancel.until else []


def _words(lines: Sequence[bytes]) -> list[Word]:
    """Claims and cancels, each with what else is said of it, in the order of the log."""
    found: dict[bytes, Word] = {}
    more: list[Said] = []
    for each in map(said, lines):
        if each.kind in (CLAIM, CANCEL):
            found[each.mark] = Word(each.kind == CANCEL, each.mark, each.first, each.at, each.until, each.place, each.term)
        else:
            more.append(each)
    for each in more:
        if each.mark in found:
            added = {"until": each.until} if each.kind == DUE else {"fate": (DECIDED[each.until], each.at)}
            found[each.mark] = found[each.mark]._replace(**added)
    return sorted(found.values(), key=lambda word: word.place)
