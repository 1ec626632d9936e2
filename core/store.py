"""Where messages wait: the contract of both stores.

Threads: every method may be called from any thread; calls are serialised inside. Durability: when a method that changes something returns, the
change survives a killed process and a loss of power; only `settle` waits for `sync` to survive the latter. Time is an argument (`now`, epoch
milliseconds); no store reads a clock.

Errors:

    StoreError              the store cannot go on: stop acknowledging, exit
    +-- StoreLocked         another process has it open
    +-- StoreClosed         it was closed in good order: the bridge is ending
    +-- StoreFull           no room left on the disk; what was asked has not happened, and settling is still possible
    Unsupported             this kind of store cannot do that (level queues: find, list and the like; cancel, where their broker keeps no log of ids)
    EndsBefore              a record cannot be moved to that instant; nothing was changed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from .durations import HOUR_MS
from .ledger import Event, Kind
from .message import Message
from .schedule import Schedule
from .targets import Partition

if TYPE_CHECKING:
    import builtins

    from .targets import Target

MEMORY_MS = 24 * HOUR_MS
"""For how long an ended id is remembered by default."""


class StoreError(Exception):
    """The store failed and cannot go on."""


class StoreLocked(StoreError):
    """Another process has this store open."""


class StoreClosed(StoreError):
    """It was closed in good order: the bridge is ending."""


class StoreFull(StoreError):
    """The disk is full. The change did not happen."""


class Unsupported(Exception):
    """A kind of store cannot do what was asked; nothing was changed. The text says why."""


class EndsBefore(Exception):
    """A schedule ends, at `ends`, before the instant `due` to which it was to be moved: it would expire there. Nothing was changed."""

    def __init__(self, ends: int, due: int) -> None:
        super().__init__(f"it ends at {ends}, before {due}")
        self.ends = ends
        self.due = due


_CARRIED = ("dead_letter", "refused")


class Record(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One waiting message with everything that its delivery and its ledger rows need.

        lane, address   the name of the destination broker, and the destination there
        id              empty on a `put` where the producer chose none: the store makes one
        taken           when the bridge took the message in (epoch ms)

    The headers in `message` are those that the consumer will see, less the delivery headers, which the lane adds.
    """

    message: Message
    schedule: Schedule
    lane: str
    address: str
    id: str = ""
    kind: Kind = "once"
    dialect: str = ""
    route: str = ""
    source_broker: str = ""
    source: str = ""
    taken: int = 0

    @property
    def is_carrier(self) -> bool:
        """Whether it is a dead letter on its way to a destination: its ledger rows are written, and it is not pending.

        A message that was refused on arrival, and never scheduled, has this kind only on the shelf.
        """
        return self.kind in _CARRIED


class Put(msgspec.Struct, frozen=True):
    """Keep a record until it is due. A record whose producer-chosen id is pending replaces that one, wherever it goes.

    `sent`: when it came for the first time, if this is not the first. What came under its id since then keeps the id, and this one gets another.
    """

    record: Record
    sent: int | None = None


class Withdraw(msgspec.Struct, frozen=True):
    """Cancel by id; an id that is not known yet is remembered, and a schedule that arrives within the store's memory is cancelled on arrival."""

    id: str


class Refuse(msgspec.Struct, frozen=True):
    """A message that cannot be honoured: counted as scheduled and as dead-lettered, and put on the shelf, or sent by `forward`, a carrier.

    An id that its producer chose replaces nothing: what is pending under it stays, and so does what `find` says of it.
    """

    record: Record
    reason: str
    detail: str
    forward: Record | None = None


Change = Put | Withdraw | Refuse


class Due(msgspec.Struct, frozen=True):
    """A record handed out for delivery. `key` names it in `settle` and `hold`; `attempts` and `error` tell of earlier tries."""

    key: bytes
    record: Record
    attempts: int = 0
    error: str = ""


class Settled(msgspec.Struct, frozen=True):
    """The outcome of one `Due`. `next` is the following occurrence, under the same id, kept in the same write.

    `dead_lettered` puts the record on the shelf, unless `forward` carries it to a dead-letter destination.
    """

    key: bytes
    event: Event
    at: int
    reason: str = ""
    detail: str = ""
    attempts: int = 1
    next: Record | None = None
    forward: Record | None = None


class Held(msgspec.Struct, frozen=True):
    """One `Due` that cannot go now: it waits, in order, behind its address, or at one partition of it, until `due_held` asks for it there."""

    key: bytes
    attempts: int
    error: str
    partition: Partition | None = None


class LedgerEvent(msgspec.Struct, frozen=True):
    """An event in the life of a record, as its ledger row tells it. `lateness` is in milliseconds, for a delivery."""

    event: Event
    at: int
    record: Record
    lateness: int | None = None
    attempts: int = 0
    reason: str = ""


class SourceProgress(msgspec.Struct, frozen=True):
    """Which messages came from a source, by their tokens (`adapters.base.Received`), so that redeliveries after a crash are recognised.

    Where all messages of a batch come from logs, `reached` has the last token of each log, and `tokens` need not be remembered.
    """

    source: str
    tokens: Sequence[bytes] = ()
    reached: Mapping[bytes, bytes] = {}


class Answer(msgspec.Struct, frozen=True):
    """What became of a request to cancel, reschedule or release.

    `done`; `too_late`: `event` happened at `at` (both empty where that is no longer remembered); `in_flight`: it is being published right now,
    ask again when that is settled; `unknown`: never heard of it.
    """

    outcome: Literal["done", "too_late", "in_flight", "unknown"]
    event: Event | None = None
    at: int | None = None


class Pending(msgspec.Struct, frozen=True):
    """A record as shown to people: where it is kept, and how delivery went so far."""

    record: Record
    state: Literal["waiting", "in_flight", "held"]
    attempts: int = 0
    error: str = ""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A filter on pending records: any of lane, address, id prefix, due from (inclusive) to (exclusive)."""

    lane: str = ""
    address: str = ""
    id_prefix: str = ""
    due_from: int | None = None
    due_to: int | None = None


class Page(msgspec.Struct, frozen=True):
    """One page of a listing. `cursor` continues it, and is empty at the end.

    A page may be short, even empty, before the end: each page does a bounded amount of work, whatever the filter.
    """

    items: tuple[Pending, ...]
    cursor: str = ""


class DeadLetter(msgspec.Struct, frozen=True):
    """A message on the shelf of those that could not be delivered."""

    number: int
    record: Record
    reason: str
    detail: str
    at: int
    attempts: int


class Counts(msgspec.Struct, frozen=True):
    """Counters that cost the same to read whatever is pending. `events` are totals since the store was made.

    `pending` is None while level queues' broker does not say how many wait.
    """

    pending: int | None
    held: int
    shelved: int
    events: dict[Event, int]
    by_address: dict[tuple[str, str], int]
    by_hour: dict[int, int]


class Store(Protocol):
    """See the module's docstring for threads, durability, time and errors."""

    @property
    def cancels(self) -> bool:
        """Whether what waits can be withdrawn by its id; where not, `cancel` raises Unsupported."""
        ...

    @property
    def indexed(self) -> bool:
        """Whether what waits can be looked for; where not, `reschedule`, `find`, `list` and those of dead letters raise Unsupported."""
        ...

    def put(self, changes: Sequence[Change], now: int, came: SourceProgress | None = None) -> list[Answer]:
        """Apply one intake batch, whole and in order, in one fsynced write; returns the answers to its Withdraws, in order.

        What `came` says of the batch is remembered by the same write.
        """
        ...

    def came(self, source: str) -> SourceProgress:
        """What is remembered of a source: the tokens of its latest batches, oldest first, and the last token of each of its logs.

        At least as many tokens are remembered as the bridge leaves messages unacknowledged.
        """
        ...

    def forget(self, source: str) -> None:
        """Remember no message of a source any more, durable on return: none of those comes again, but others may look like them."""
        ...

    def wants_again(self, source: str, change: Change) -> bool:
        """Whether `put` wants a change that is stored already, when its source gives the message once more.

        A store that bridges share may: another bridge can have claimed the message's id meanwhile, and `put` settles which copy counts. Does not block.
        """
        ...

    def due(self, lane: str, now: int, limit: int, max_bytes: int) -> list[Due]:
        """Hand out records that are due, at most `limit` and about `max_bytes`. They are *in flight*, and not handed out again, until settled or held.

        A record is in flight until `settle`, `hold` or `put_back`. Records of one address come in order of (due, arrival). The addresses take turns, so that
        a burst for one keeps no other waiting.

        A record that falls due for a target that holds others back joins these by itself, those behind its whole address first; but if all of them are in
        flight, it may be handed out after them.
        """
        ...

    def due_held(self, lane: str, target: Target, now: int, limit: int, max_bytes: int) -> list[Due]:
        """Hand out, as `due` does, the records that are held back at a target, in order. Some of an address may belong behind its partitions by now."""
        ...

    def next_due(self, lane: str) -> int | None:
        """When the next record that `due` would hand out falls due, None where nothing waits. Held records do not count.

        If very many held records lie before it, the answer may be the time of one of them: then `due` returns nothing; ask again.
        """
        ...

    def settle(self, outcomes: Sequence[Settled], now: int, *, wait: bool = True) -> bool:
        """Record outcomes, each together with its next occurrence and its ledger row. They survive a killed process at once, a loss of power after `sync`.

        If the power is lost before `sync`, these records are delivered again, with the same id and occurrence. In exchange no delivery waits for a disk: if
        the disk is busy and `wait` is False, nothing is recorded and the answer is False; call it again a little later.
        """
        ...

    def sync(self) -> None:
        """Make all that was settled so far survive a loss of power. Blocks for one fsync, and no other call meanwhile."""
        ...

    def hold(self, failed: Sequence[Held], now: int) -> None:
        """Move records in flight to where they wait. They come back only through `due_held`."""
        ...

    def put_back(self, keys: Sequence[bytes]) -> None:
        """Make these due again: the connection died before anything was heard of them.

        One that was due before records that are held back at its target waits there with them, and goes out first; so after a restart.
        """
        ...

    def lanes(self) -> builtins.list[str]:
        """The lanes in which anything waits, as far as this bridge knows."""
        ...

    def first_due(self) -> int | None:
        """When the first of all that waits here is due, None where nothing does. Costs the same whatever is pending."""
        ...

    def held(self, lane: str) -> dict[Target, tuple[int, str]]:
        """The targets of a lane that hold records back, each with the attempts and the error of its first record."""
        ...

    def cancel(self, id: str, now: int) -> Answer:  # noqa: A002 - the field's own word
        """Withdraw a pending record. Unlike with Withdraw, an id that is unknown is not remembered."""
        ...

    def reschedule(self, id: str, due: int, now: int) -> Answer:  # noqa: A002 - the field's own word
        """Move a pending record to another instant, `now` at the earliest; its recurrence, if any, goes on as before after it. Raises EndsBefore.

        What is due at an instant at which the bridge was down counts as missed, which the misfire rule `skip` lets expire: what is moved has missed nothing.
        """
        ...

    def find(self, id: str) -> Pending | Answer:  # noqa: A002 - the field's own word
        """The pending record with this id, or what became of it."""
        ...

    def list(self, query: Query, limit: int, cursor: str = "") -> Page:
        """Pending records in order of due time (of id, where an id prefix is given)."""
        ...

    def dead_letters(self, limit: int, after: int = 0) -> Sequence[DeadLetter]:
        """The shelf, oldest first, after number `after`: at most `limit`. A short page is not the end; an empty one is."""
        ...

    def retry_dead_letter(self, number: int, now: int, address: str = "") -> bool:
        """Schedule a shelved message again, due now, to another address if one is given; False where there is none. It counts as scheduled anew."""
        ...

    def drop_dead_letter(self, number: int, now: int) -> bool:
        """Forget a shelved message; its ledger row stays."""
        ...

    def counts(self) -> Counts:
        """All counters."""
        ...

    def room(self) -> bool:
        """Whether the disk has room for more; where not, `put` raises StoreFull, and settling is still possible."""
        ...

    def free_bytes(self) -> int:
        """What is free on the store's disk, or left of `max_size`, if that is less."""
        ...

    def size_bytes(self) -> int:
        """What the store takes of its disk."""
        ...

    def close(self) -> None:
        """Release the store; what was in flight is handed out again after the next start."""
        ...
