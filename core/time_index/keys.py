r"""The keys: what stands where on disk. All numbers are big-endian, so that byte order is number order.

    family  key                                              value
    ------  -----------------------------------------------  ------------------------------------------------------------
    due     track 2 | instant 6 | arrival 8                  Record (msgpack); its id is empty where the key implies it
    due     \0                                               number of the last write, as in 'n' of meta; no track has this number
    ids     \0                                               the same
    ids     'i' id                                           'p' due key | 'e' event at | 'w' at
    ids     'x' at 8 | id                                    nothing: when a remembered id was written, oldest first
    meta    'f'                                              format version
    meta    'm'                                              the store's tag in the ids that it makes (made.py); none in stores of an earlier state
    meta    'n'                                              the numbers: write, arrival, row, intake batch, dead letter
    meta    'l' name                                         lane number
    meta    'q' lane 2 | address                             track number: where that address's records wait
    meta    'k' track 2                                      cursor: what waits before this due key is held back, all of it
    meta    'c' 't' name | 'a' lane 2 address | 'h' hour 4   counter; absent is zero
    meta    'h' track 2 | hash 8 | instant 6 | arrival 8     held back at the target with this hash: attempts, error (msgpack)
    meta    'b' track 2 | target                              how many are held back there
    meta    'z' due key                                      event with which a doomed record ends unless it is delivered
    meta    't' source \0 | batch 8                          tokens of one intake batch (msgpack)
    meta    'r' source \0 | log                              the last token that came from that log
    meta    's' number 8                                     dead letter: record, reason, detail, at, attempts (msgpack)
    meta    'o' row number 8                                 ledger rows of one write (msgpack), the first has that number
    meta    'w'                                              the range of rows that the ledger writer is writing

`instant` is when a record may go out: its due time, or when it came in, if that was later. `arrival` numbers everything that came in.
`target` is an address, or for a partition `address \xff number 4 | total 4`.
"""

from __future__ import annotations

import struct
from hashlib import blake2b

from ..targets import Partition, Target

FORMAT = 2
INSTANT_LIMIT = 1 << 48
"""Instants are 48 bits of milliseconds: the year 10889."""

NUMBER_LIMIT = 1 << 64
"""What is numbered has less."""

NO_TRACK = 0
"""In the made ids of messages that were refused, and never waited."""

due_key = struct.Struct(">QQ").pack
"""A due key from `track base | instant` and the arrival number."""
pack16 = struct.Struct(">H").pack
pack64 = struct.Struct(">Q").pack
_pack32 = struct.Struct(">I").pack
_pack_partition, _unpack_partition = struct.Struct(">ii").pack, struct.Struct(">ii").unpack
_NO_UTF8 = b"\xff"

FORMAT_KEY = b"f"
TAG_KEY = b"m"
WRITE_KEY = b"\0"
NUMBERS_KEY = b"n"
INTENT_KEY = b"w"
NAME_KEY = b"a"
LANES = b"l"
TRACKS = b"q"
COUNT_ADDRESS = b"ca"
COUNT_HOUR = b"ch"
COUNT_TOTAL = b"ct"
HELD_COUNTS = b"b"
DOOMED = b"z"
SHELF = b"s"
OUTBOX = b"o"


def track_base(number: int) -> int:
    """What a track adds to an instant to give the first half of its due keys."""
    return number << 48


def track_prefix(number: int) -> bytes:
    """The first two bytes of all due keys of a track."""
    return pack16(number)


def number_of(key: bytes) -> int:
    """The number that a key begins with: of the track, in a due key."""
    return key[0] << 8 | key[1]


def instant_of(key: bytes) -> int:
    """When the record under a due key may go out."""
    return int.from_bytes(key[2:8], "big")


def arrival_of(key: bytes) -> int:
    """The arrival number in a due key."""
    return int.from_bytes(key[8:], "big")


def moved(key: bytes, instant: int) -> bytes:
    """The due key of the same track and arrival at another instant."""
    return key[:2] + pack64(checked(instant))[2:] + key[8:]


def checked(instant: int) -> int:
    """An instant that fits a due key; ValueError where it does not."""
    if not 0 <= instant < INSTANT_LIMIT:
        raise ValueError(f"the instant {instant} does not fit the time index: 0 to {INSTANT_LIMIT - 1} ms")
    return instant


def cursor_key(track: int) -> bytes:
    """Where a track's cursor is kept."""
    return b"k" + pack16(track)


def lane_key(name: str) -> bytes:
    """Where a lane's number is kept."""
    return LANES + name.encode()


def track_key(lane: int, address: str) -> bytes:
    """Where the number of an address's track is kept."""
    return TRACKS + pack16(lane) + address.encode()


def id_key(record_id: str) -> bytes:
    """Where an id's state is kept."""
    return b"i" + record_id.encode()


def forget_key(at: int, record_id: str) -> bytes:
    """Marks an id that was remembered at `at`, so that it can be found when its time is over."""
    return b"x" + pack64(at) + record_id.encode()


def held_prefix(track: int, target: Target) -> bytes:
    """The start of the keys of what is held back at a target."""
    return b"h" + pack16(track) + blake2b(_packed_target(target), digest_size=8).digest()


def held_count_key(track: int, target: Target) -> bytes:
    """Where it is kept how many a target holds back."""
    return HELD_COUNTS + pack16(track) + _packed_target(target)


def _packed_target(target: Target) -> bytes:
    if isinstance(target, str):
        return target.encode()
    return target.address.encode() + _NO_UTF8 + _pack_partition(target.number, target.total)


def target_of(key: bytes) -> Target:
    """The target in a `held_count_key`."""
    address, _, partition = key[3:].partition(_NO_UTF8)
    return Partition(address.decode(), *_unpack_partition(partition)) if partition else address.decode()


def doomed_key(key: bytes) -> bytes:
    """Where it is kept that a record must not go out again."""
    return DOOMED + key


def tokens_prefix(source: str) -> bytes:
    """The start of the keys of a source's tokens."""
    return b"t" + source.encode() + b"\0"


def reached_prefix(source: str) -> bytes:
    """The start of the keys of how far each log of a source was taken in."""
    return b"r" + source.encode() + b"\0"


def shelf_key(number: int) -> bytes:
    """Where a dead letter is kept."""
    return SHELF + pack64(number)


def outbox_key(row: int) -> bytes:
    """Where the ledger rows of the write whose first row has this number are kept."""
    return OUTBOX + pack64(row)


def address_count_key(lane: int, address: str) -> bytes:
    """Where the number of records that wait for an address is kept."""
    return COUNT_ADDRESS + pack16(lane) + address.encode()


def hour_count_key(hour: int) -> bytes:
    """Where the number of records that fall due in an hour (since the epoch) is kept."""
    return COUNT_HOUR + _pack32(min(max(hour, 0), 0xFFFFFFFF))


def after(prefix: bytes) -> bytes:
    """The first key after all those that start with `prefix`."""
    number = int.from_bytes(prefix, "big") + 1
    return number.to_bytes(len(prefix), "big")
