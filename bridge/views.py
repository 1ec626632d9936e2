"""What the running daemon tells about itself, and what can be asked of it: the types between the engine's control and HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from ..core.ledger import Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from ..adapters.base import Received
    from ..core.downtimes import Downtimes
    from ..core.message import Message
    from ..core.store import Answer, DeadLetter, Page, Pending, Query, Record


class NotKnownError(Exception):
    """A route or broker of that name is not configured."""


class NotPossibleError(Exception):
    """It is known, but cannot do this: a broker whose adapter cannot observe, or no route named where there are several."""


class WouldBeRefusedError(Exception):
    """A message that the bridge would dead-letter, and that was therefore not sent. `reason` is the stable code."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class RouteStatus(msgspec.Struct, frozen=True):
    """One route: `received` counts messages since the start; `from` and `to` are written for people (`rabbit queue delaybridge.in`).

    `error` says why it is not connected.
    """

    name: str
    paused: bool
    connected: bool
    received: int
    source: str = msgspec.field(name="from")
    to: str
    error: str = ""


class HeldStatus(msgspec.Struct, frozen=True):
    """A destination that takes no messages now: how often its first message was tried, why that failed, when it is tried next (epoch ms; None while paused).

    `partition`: the one that takes none, where the others do; -1 where no partition takes messages that may go to any.
    """

    address: str
    attempts: int
    error: str
    retry_at: int | None
    partition: int | None = None


class LaneStatus(msgspec.Struct, frozen=True):
    """One destination broker: `in_flight` messages await their confirmation, `published` counts confirmed ones since the start.

    `error` says why it is not connected.
    """

    broker: str
    connected: bool
    in_flight: int
    published: int
    held: list[HeldStatus]
    error: str = ""


class AddressStatus(msgspec.Struct, frozen=True):
    """How many messages wait for one destination."""

    broker: str
    address: str
    pending: int


class HourStatus(msgspec.Struct, frozen=True):
    """How many messages fall due in the hour that begins at `hour` (epoch ms)."""

    hour: int
    pending: int


class LevelStatus(msgspec.Struct, frozen=True):
    """One level queue: how long each message waits there (ms), and `depth`, how many do, None where the broker does not say.

    `first_leaves` (epoch ms) is of the messages that this bridge can see: None if it sees none, as on RabbitMQ, which shows no message before it leaves.
    `error` says why it is not connected, or does not take messages.
    """

    name: str
    wait: int
    connected: bool
    depth: int | None
    first_leaves: int | None
    error: str = ""


class StoreStatus(msgspec.Struct, frozen=True):
    """`free_bytes`: free on the disk, or left of the store's `max_size`. If they are too few, `room` is False: intake stands still, delivery goes on.

    `path` is absolute.
    """

    free_bytes: int
    room: bool
    path: str = ""


class LedgerStatus(msgspec.Struct, frozen=True):
    """`backlog` rows are in no file yet. `error` says why the last try to write them failed: they wait in the store, and messages flow."""

    backlog: int = 0
    error: str = ""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The whole daemon at one glance. `started` and `now` are epoch milliseconds; `events` are ledger totals since the store was made.

    `pending` is None where the broker of level queues does not say how many messages wait in them.

    `config` is the configuration's file, absolute; None where there is none. `by_address` and `by_hour` hold the first 1,000 each. `without_broker` are
    brokers for which messages wait, and which the configuration does not name. `needs_restart` and `needs_reload` are keys that the file says otherwise by now
    than what is in force; where the first has any, a reload is refused. Without `config_usable` no restart would succeed with the file as it is.
    """

    bridge: str
    version: str
    ready: bool
    started: int
    now: int
    pending: int | None
    held: int
    shelved: int
    events: dict[Event, int]
    oldest_overdue_ms: int
    routes: list[RouteStatus]
    lanes: list[LaneStatus]
    by_address: list[AddressStatus]
    by_hour: list[HourStatus]
    store: StoreStatus
    ledger: LedgerStatus = LedgerStatus()
    levels: list[LevelStatus] = []
    config: str | None = None
    without_broker: list[str] = []
    needs_restart: list[str] = []
    needs_reload: list[str] = []
    config_usable: bool = True


class Check(msgspec.Struct, frozen=True):
    """One thing that must be well before the bridge is ready."""

    name: str
    ok: bool
    detail: str = ""


class ControlPort(Protocol):
    """What HTTP asks of the engine. Every method may be called from any thread, and any may raise `core.store.StoreError`.

    What a kind of store cannot do raises `core.store.Unsupported`; `cancel` in level queues raises AdapterError where their broker cannot be reached.
    """

    @property
    def downtimes(self) -> Downtimes:
        """When the bridge did not run, up to the beginning of this run."""
        ...

    def status(self) -> Status:
        """Costs the same whatever is pending."""
        ...

    def alive(self) -> bool:
        """Every thread runs, or is on its way to an orderly end. Never tells of brokers or of the disk: a restart of the bridge would mend neither."""
        ...

    def checks(self) -> Sequence[Check]:
        """What readiness depends on: room on the disk, and every broker connected and taking messages. Ready is when all are ok."""
        ...

    def messages(self, query: Query, limit: int, cursor: str) -> Page:
        """See `core.store.Store.list`. Raises ValueError for a cursor that is none, and NotKnownError for a lane of which nothing is known."""
        ...

    def find(self, id: str) -> Pending | Answer:  # noqa: A002 - the field's own word
        """See `core.store.Store.find`."""
        ...

    def next_dues(self, record: Record, count: int) -> list[int]:
        """When this occurrence and the following ones are due (epoch ms), at most `count`, fewer if the schedule ends earlier."""
        ...

    def waits_for(self, record: Record) -> str:
        """What keeps a record that is due from going out; empty where nothing does, and where it is not due."""
        ...

    def pending(self) -> Iterator[Pending]:
        """Every pending record, in order of due time; holds a bounded number of them at once."""
        ...

    def cancel(self, id: str) -> Answer:  # noqa: A002 - the field's own word
        """Withdraw. Waits at most a few seconds while the message is in flight, then answers `in_flight`; so do the next two."""
        ...

    def reschedule(self, id: str, due_ms: int) -> Answer:  # noqa: A002 - the field's own word
        """Move to another instant; a past one means now. Waits as `cancel` does. Raises NotPossibleError if the schedule ends before that."""
        ...

    def release(self, id: str) -> Answer:  # noqa: A002 - the field's own word
        """Deliver now: `reschedule` to this instant."""
        ...

    def dead_letters(self, limit: int, after: int) -> Sequence[DeadLetter]:
        """See `core.store.Store.dead_letters`."""
        ...

    def retry_dead_letter(self, number: int) -> bool:
        """Schedule a shelved message again: due now, or, if it was refused on arrival, as its headers say under the rules in force now.

        A dead letter that its destination did not take goes to the `dead_letter` that its route names now. False if none has that number. Raises
        NotPossibleError if it would be refused again, or if no route leads there any more.
        """
        ...

    def drop_dead_letter(self, number: int) -> bool:
        """Forget a shelved message; False where there is none of that number."""
        ...

    def pause(self, route: str) -> bool:
        """Go on storing this route's messages but publish none; False where no route has that name. Survives a restart. Idempotent.

        A paused route stays known after it leaves the configuration: its messages wait for `resume`.
        """
        ...

    def resume(self, route: str) -> bool:
        """Publish again, what waited first; False as `pause`. Idempotent."""
        ...

    def send(self, route: str | None, message: Message, address: str, *, force: bool = False) -> None:
        """Publish to a route's source, as a producer would, and wait for the broker's confirmation.

        Without `route`: by the only route. `address` is where the producer would send it; empty: the source itself. A message that the bridge is known to
        dead-letter is sent only with `force`. Raises NotKnownError, NotPossibleError, WouldBeRefusedError and AdapterError.
        """
        ...

    def observe(self, broker: str, address: str, *, take: bool) -> AbstractContextManager[Iterator[Sequence[Received]]]:
        """Copies of what arrives at a destination from now on, for as long as the context is open, driven by one thread.

        Where there are no copies, the messages themselves, with `take` only.

        The iterator gives an empty batch where nothing came for about a second, and ends when the daemon stops. Entering raises
        NotKnownError, NotPossibleError and AdapterError.
        """
        ...
