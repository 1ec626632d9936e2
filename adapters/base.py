"""The contract of a broker adapter: four verbs and an acknowledgement.

An adapter never connects again by itself, holds a destination back, or gives a message up: it raises one of three errors, and the bridge acts on it.
It runs the threads that its client needs, and may repeat what its broker has certainly not done (a commit in the middle of a rebalance, say).

    AdapterError
    +-- NotConnected        the connection is gone or cannot be made: the bridge calls `connect` again, with back-off
    +-- BackOff             this destination does not take messages now: the bridge holds it back, others go on
    +-- Rejected            this message will never be taken: the bridge dead-letters it with the reason

An adapter is found by the entry-point group `delaybridge.adapters`; the entry point names an `Adapter`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from ..core.message import Message

if TYPE_CHECKING:
    from ..core.reasons import Reason
    from .levelled import Level


class AdapterError(Exception):
    """Base of the errors that an adapter raises."""


class NotConnected(AdapterError):
    """There is no connection to the broker."""


class BackOff(AdapterError):
    """The destination does not take messages now."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Rejected(AdapterError):
    """The broker will never take this message."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Received(msgspec.Struct, frozen=True):
    """One message from a source.

    `address` is where its producer sent it, as this broker writes addresses. `token` identifies it at its source, so that a redelivery is
    recognised; `redelivered` says that it may be one. `sent` is when the broker received it (epoch ms), where it says so. `defect`
    is set where the adapter could not carry the message faithfully: it is dead-lettered with that reason.

    `log` is for a source that is a log, where all is kept in an order that never changes: it begins the token and names the log; the rest of the token is a
    position, of always the same length, that grows, as bytes, from each message of the log to the next. Of such a source the bridge remembers how far it came.
    """

    message: Message
    address: str
    token: bytes
    redelivered: bool = False
    sent: int | None = None
    defect: Rejected | None = None
    log: bytes = b""


class Batch(msgspec.Struct, frozen=True):
    """Messages in the broker's order, and the call that lets the broker forget them all.

    `ack` may be called from the receiving thread only, once; it does not block, and does nothing where the connection is already gone (the
    broker will deliver the batch again).

    `ack_some`, where a source can do it, acknowledges only the messages at these places in `messages`: each place once, and before `ack`, which then
    acknowledges the rest.
    Intake has no use for it; at a level, what is stuck keeps its whole batch unacknowledged without it.

    `elsewhere`, where a source can lose messages although its connection stays, as in a group whose partitions move, says whether another consumer
    is given the message at a place. Any thread; does not block.
    """

    messages: Sequence[Received]
    ack: Callable[[], None]
    ack_some: Callable[[Sequence[int]], None] | None = None
    elsewhere: Callable[[int], bool] | None = None


class Source(Protocol):
    """Where messages come in. One thread drives it."""

    def connect(self) -> None:
        """Open the connection and subscribe; blocks for at most the configured connection time-out. Raises NotConnected."""
        ...

    def receive(self, limit: int, timeout: float) -> Batch | None:
        """At most `limit` messages, waiting up to `timeout` seconds for the first; None where there was none. Raises NotConnected.

        With a limit of 0 it only tells whether the connection is there.

        Not calling it is back-pressure: the adapter holds at most its prefetch window in memory.
        """
        ...

    def close(self) -> None:
        """Stop the subscription, let sent acknowledgements arrive, disconnect. What was not acknowledged goes back to the broker. Idempotent."""
        ...


class Outgoing(msgspec.Struct, frozen=True):
    """One message to publish. `tag` comes back with its outcome."""

    tag: bytes
    address: str
    message: Message


Outcome = tuple[bytes, AdapterError | None]
"""A tag, and None where the broker confirmed, or why it did not. NotConnected means that nobody knows: it may have been delivered."""

Confirm = Callable[[Sequence[Outcome]], None]


class Sink(Protocol):
    """Where messages go out. One thread drives it."""

    def connect(self, confirm: Confirm) -> None:
        """Open the connection; blocks for at most the configured time-out. Raises NotConnected.

        `confirm` hears the outcome of each message exactly once, in any order, from any thread, also when the connection is lost or closed. It raises nothing.
        """
        ...

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """Send in order, without waiting for confirmation; raises NotConnected: then none was sent.

        Buffers as many messages as the caller leaves unconfirmed. Without messages it only says whether the connection is there.
        """
        ...

    def close(self) -> None:
        """Disconnect; unconfirmed messages are reported as NotConnected. Idempotent."""
        ...


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """In what brokers, or their clients, differ so that the bridge acts differently.

    `exact`: the tokens of its sources name one message each, however alike two of them are. `addressed`: the place from which a route reads names the
    one for which its messages are, as the topic `orders.delayed` does `orders`. `embedded`: the broker lives in the daemon's process, nobody else
    can reach it, and it intercepts nothing. `own_processes`: its sources and sinks run in processes of their own unless a configuration says otherwise.
    `copied`: how addresses begin at which a tap gives copies; at others it takes the messages themselves away. `probes`: how the addresses begin that
    `doctor` makes for its probes.
    """

    exact: bool = False
    addressed: bool = False
    embedded: bool = False
    own_processes: bool = False
    copied: str = ""
    probes: tuple[str, ...] = ()

    def copies(self, address: str) -> bool:
        """Whether a tap there gives copies."""
        return address.startswith(self.copied)


class Adapter(Protocol):
    """What an entry point in the group `delaybridge.adapters` names.

    `options` and `endpoint` are the pydantic models of a broker's section and of a route's `from`: what they have validated is passed to the methods.
    """

    options: type[Any]
    endpoint: type[Any]
    traits: Traits

    def source(self, options: Any, route: Any) -> Source:
        """A source for one route; not connected yet. `route` is the validated `from` section, less the broker's name."""
        ...

    def sink(self, options: Any) -> Sink:
        """A sink for this broker; not connected yet."""
        ...


class Step(msgspec.Struct, frozen=True):
    """One thing that interception needs on the broker: `what` in a sentence, `command` to paste, `done` where it is already so.

    Without a command, what is not done can be done neither by `apply` nor by pasting; with one that is to be pasted `by_hand`, not by `apply`. `reads`
    are the environment variables of the command.
    """

    what: str
    command: str
    done: bool
    reads: tuple[str, ...] = ()
    by_hand: bool = False


class Finding(msgspec.Struct, frozen=True):
    """One thing that `doctor` looked at; `fix` says what to do where it is not `ok`."""

    ok: bool
    what: str
    fix: str = ""


class Interception(Protocol):
    """Optional ability of an adapter: what the broker needs so that a header is enough (queues, exchanges, policies)."""

    def plan(self) -> list[Step]:
        """What would be declared; changes nothing."""
        ...

    def apply(self) -> list[Step]:
        """Declare what is missing, losing and doubling no undelayed message meanwhile. Idempotent."""
        ...

    def undo(self) -> list[Step]:
        """Take away what `apply` declared, losing and doubling nothing meanwhile; what waits in the bridge is still delivered. Idempotent."""
        ...

    def check(self) -> list[Finding]:
        """Find what is missing and what goes past the bridge; changes nothing."""
        ...

    def probe(self) -> list[Finding]:
        """Send a delayed message of its own through each way into the running bridge and wait for it; no consumer sees it."""
        ...


@runtime_checkable
class Intercepting(Protocol):
    """An adapter that can prepare its broker."""

    def interception(self, options: Any, routes: Sequence[Any]) -> Interception:
        """For all routes that read from this broker (their validated `from` sections)."""
        ...


@runtime_checkable
class Crowded(Protocol):
    """Optional ability of an Interception: to tell where other bridges take in messages as well."""

    def crowds(self) -> dict[str, int]:
        """The ingress queues with more consumers than one bridge of this configuration has there, each with their number; changes nothing."""
        ...


@runtime_checkable
class Gathering(Protocol):
    """Optional ability of a source: to give messages less often, more at once, which costs its broker and the bridge less."""

    def gather(self, *, calm: bool) -> None:
        """`calm`: nothing that comes from now on is likely to be urgent, so it may be received up to 0.25 s after it came. Until the first call it may not.

        Called by the thread that receives.
        """
        ...


@runtime_checkable
class Sharing(Protocol):
    """Optional ability of a source: to tell that another consumer has some of what it gave, see `Batch.elsewhere`."""

    @property
    def handed_over(self) -> int:
        """A number that changes with each time at which that may have happened. Any thread; asked for each look at the broker."""
        ...


@runtime_checkable
class Addressing(Protocol):
    """Optional ability of an adapter: to tell an address to which its sink will never send, while the configuration is read."""

    def check_address(self, address: str) -> None:
        """Raises Rejected(bad_destination). Asks no broker."""
        ...


@runtime_checkable
class Directing(Protocol):
    """Optional ability of an adapter: to tell, while the configuration is read, that nothing that a route reads says where it goes."""

    def undirected(self, options: Any, route: Any) -> str | None:
        """Why no message that comes in there names its own destination; None where one may. Asks no broker."""
        ...


@runtime_checkable
class Blockable(Protocol):
    """Optional ability of a sink: to tell that its broker takes nothing from it for now, though the connection stands."""

    @property
    def blocked(self) -> str:
        """Why, for people; empty while it takes messages. Any thread; does not block."""
        ...


def blocked(sink: object) -> str:
    """Why a sink's broker takes no messages, though it is connected; empty while it does, and where nobody can tell. Any thread; does not block."""
    return sink.blocked if isinstance(sink, Blockable) else ""


@runtime_checkable
class Observable(Protocol):
    """An adapter that can listen at a destination, for `delaybridge observe` and `doctor`."""

    def tap(self, options: Any, address: str) -> Source:
        """A source of copies of what arrives at `address` from now on; takes nothing away from the real consumers where the broker allows it."""
        ...


@runtime_checkable
class Trailing(Protocol):
    """Optional ability of a tap: to tell that something that arrived a second ago is not given yet, as behind somebody's open transaction."""

    @property
    def behind(self) -> bool:
        """Whether that is so. Transactions that open and end all the time are no reason. Any thread; does not block."""
        ...


@runtime_checkable
class Producing(Protocol):
    """Optional ability of an adapter whose sink does not do with a delay header what a producer on this broker does."""

    def producer(self, options: Any, route: Any) -> Sink:
        """A sink for what somebody sends as a producer of this route (its validated `from` section) would, delay headers included."""
        ...


@runtime_checkable
class Examinable(Protocol):
    """Optional ability of an adapter, for `doctor`: what keeps messages from arriving, or from being read. What a broker does not tell is `ok`, and said."""

    def standstills(self, options: Any, routes: Sequence[Any], addresses: Sequence[str], levels: Sequence[Level]) -> list[Finding]:
        """In what `routes` (validated `from` sections) read, at `addresses`, where messages go, and at `levels`; changes nothing. Raises AdapterError."""
        ...
