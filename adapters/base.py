"""The contract of a broker adapter: four verbs and an acknowledgement.

An adapter reports, and the bridge decides. An adapter never reconnects by itself, never holds a destination back, and never gives a message up: it raises one
of three errors, and the bridge acts on it. It runs the threads that its client library needs. It may repeat a request that its broker has certainly not
carried out, such as a commit in the middle of a rebalance.

    AdapterError
    +-- NotConnected        the connection is gone or cannot be made: the bridge calls `connect` again, with back-off
    |   +-- LoginRefused    the broker is there, and does not know this user or password: it is asked less and less often
    +-- BackOff             this destination, or partition of one, does not take messages now: the bridge holds it back, others go on
    +-- Rejected            this message will never be taken: the bridge dead-letters it with the reason

An adapter is found by the entry-point group `delaybridge.adapters`; the entry point names an `Adapter`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from ..core.message import Message

if TYPE_CHECKING:
    from ..core.reasons import Reason


class AdapterError(Exception):
    """Base of the errors that an adapter raises."""


class NotConnected(AdapterError):
    """There is no connection to the broker."""


class LoginRefused(NotConnected):
    """The broker does not know this user or password. It may lock the account if it is asked often."""


def telling(failures: Sequence[NotConnected]) -> NotConnected:
    """Of what became of several hosts of one broker: a refused login, so that it is not asked for as often as a host that is away; else the last."""
    return next((each for each in failures if isinstance(each, LoginRefused)), failures[-1])


class BackOff(AdapterError):
    """The destination does not take messages now. `partitions`: only the message's partition does not, of so many; see Partitioned."""

    def __init__(self, reason: Reason, detail: str, partitions: int = 0) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.partitions = partitions


class Rejected(AdapterError):
    """The broker will never take this message."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Received(msgspec.Struct, frozen=True):
    """One message from a source.

        address       where its producer sent it, as this broker writes addresses; empty where that was the bridge's own ingress
        token         the same for a message and its redelivery, so that a redelivery is recognised
        redelivered   whether this may be a redelivery
        sent          when it was sent (epoch ms), by the broker's clock if it stamps messages, else by the producer's; None where neither does
        defect        set where the adapter could not carry the message faithfully: it is dead-lettered with that reason
        log           the name of the log that it comes from, where the source is a log (a Kafka partition, say); else empty

    In a log the order of messages never changes. The token of a message in a log begins with the log's name; the rest is its position there, of fixed length,
    so that comparing two tokens as bytes compares the positions. Of a log the bridge remembers only the last token.
    """

    message: Message
    address: str
    token: bytes
    redelivered: bool = False
    sent: int | None = None
    defect: Rejected | None = None
    log: bytes = b""


class Batch(msgspec.Struct, frozen=True):
    """Messages in the broker's order, and the calls that let the broker forget them.

    `ack` acknowledges the whole batch. It is called once, by the thread that receives. It does not block, and does nothing if the connection is gone: the
    broker will deliver the batch again.

    `ack_some`, where a source has it, acknowledges single messages by their places in `messages`: each place once, and before `ack`, which then acknowledges
    the rest. Intake does not need it. The source of a level must have it, or one message that cannot move on would keep its whole batch unacknowledged.

    `elsewhere` is for a source that can lose messages while its connection stands, as when a partition of a consumer group moves. It tells whether the
    message at a place now belongs to another consumer. Any thread; does not block.
    """

    messages: Sequence[Received]
    ack: Callable[[], None]
    ack_some: Callable[[Sequence[int]], None] | None = None
    elsewhere: Callable[[int], bool] | None = None


class Source(Protocol):
    """Where messages come in. One thread drives it."""

    def connect(self) -> None:
        """Open the connection and subscribe; blocks for at most the configured connection time-out for each of the broker's addresses. Raises NotConnected."""
        ...

    def receive(self, limit: int, timeout: float) -> Batch | None:
        """At most `limit` messages, waiting up to `timeout` seconds for the first; None where there was none. Raises NotConnected.

        With a limit of 0 it takes nothing, and only raises NotConnected if the connection is gone.

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
"""The tag of a message, and None if the broker confirmed it, else why not. NotConnected: nobody knows, it may have been delivered."""

Confirm = Callable[[Sequence[Outcome]], None]


class Sink(Protocol):
    """Where messages go out. One thread drives it."""

    def connect(self, confirm: Confirm) -> None:
        """Open the connection; blocks as long as `Source.connect`. Raises NotConnected.

        `confirm` hears the outcome of each message exactly once, in any order, from any thread, also when the connection is lost or closed. It raises nothing.
        """
        ...

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """Send in order, without waiting for confirmation; raises NotConnected: then none was sent.

        Buffers as many messages as the caller leaves unconfirmed. Without messages it only raises NotConnected if the connection is gone.
        """
        ...

    def close(self) -> None:
        """Disconnect; unconfirmed messages are reported as NotConnected. Idempotent."""
        ...


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """Where brokers of this type, or their client libraries, differ so that the bridge has to act differently.

    exact           a token identifies one message; two messages of the same content have different tokens
    addressed       the place that a route reads names the destination, as the topic `orders.delayed` names `orders`
    embedded        the broker lives in the daemon's process: no other process can reach it, and it intercepts nothing
    own_processes   its sources and sinks run in processes of their own, unless a configuration says otherwise
    copied          how addresses begin at which a tap gets copies; at all others it takes the messages themselves away
    probes          how the addresses begin that `doctor` makes for its probes
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


@runtime_checkable
class Gathering(Protocol):
    """Optional ability of a source: to give messages less often and in larger batches, which costs its broker and the bridge less."""

    def gather(self, *, calm: bool) -> None:
        """`calm`: nothing urgent is expected, so a message may be received up to 0.25 s after it came. Until the first call none may be late.

        Called by the thread that receives.
        """
        ...


@runtime_checkable
class Sharing(Protocol):
    """Optional ability of a source: to tell that some of what it gave may belong to another consumer by now; see `Batch.elsewhere`."""

    @property
    def handed_over(self) -> int:
        """A counter that changes each time that this may have happened. Any thread; does not block."""
        ...


@runtime_checkable
class Holding(Protocol):
    """Optional ability of a source: to tell whether it still has what it gave. What it loses is given to another consumer, which may be at work on it already.

    Both are called by the thread that receives.
    """

    def tenure(self) -> Hashable:
        """A token for its present hold on what it gave last. It changes whenever the source may have been given more to read, as in a rebalance.

        Does not block. Raises NotConnected where it knows that it has lost its hold.
        """
        ...

    def affirm(self, tenure: Hashable) -> bool:
        """Whether the broker says, asked now, that this tenure has not ended: then whoever else gets any of these messages gets them later.

        False where another tenure has begun. Blocks for one round trip, as a rule, and twice the configured time-out at most. Raises NotConnected where the
        messages are lost, or the broker does not say.
        """
        ...


@runtime_checkable
class Parting(Protocol):
    """Optional ability of a source: to tell how it parted from its broker."""

    @property
    def parted(self) -> bool:
        """Whether the broker answered the farewell of the last `close`: then it has every acknowledgement. Else it may give the last messages again."""
        ...


def parted(source: Source) -> bool:
    """Whether the broker of a source that was closed has every acknowledgement, as far as the source can tell."""
    return not isinstance(source, Parting) or source.parted


@runtime_checkable
class Addressing(Protocol):
    """Optional ability of an adapter: to refuse, before its broker is asked, an address to which its sink could never send."""

    def check_address(self, address: str) -> None:
        """Raises Rejected(bad_destination). Asks no broker."""
        ...


@runtime_checkable
class Spelling(Protocol):
    """Optional ability of an adapter: to tell which addresses are one destination, where it reads several spellings of one. Asks no broker."""

    def canonical(self, address: str) -> str:
        """As its sources write this destination. Raises Rejected(bad_destination)."""
        ...

    def gated(self, route: Any, address: str) -> bool:
        """Whether a gate of this route (its validated `from` section) leads to a canonical address: then its source says that messages go there."""
        ...

    def several(self, address: str) -> bool:
        """Whether a tap at this address, which its broker can have, may get what was sent to others."""
        ...


@runtime_checkable
class Partitioned(Protocol):
    """Optional ability of an adapter: its destinations have partitions, each of which may refuse messages while others take them."""

    def partition(self, message: Message, total: int) -> int:
        """The partition, from 0, to which its sink sends a message where the destination has so many; `targets.ANY` where any would do.

        Asks no broker, and says the same each time.
        """
        ...


@runtime_checkable
class Directing(Protocol):
    """Optional ability of an adapter: to tell, while the configuration is read, that no message of a route can say where it goes."""

    def undirected(self, options: Any, route: Any) -> str | None:
        """Why no message that comes in by this route names its own destination; None where one may. Asks no broker."""
        ...


@runtime_checkable
class Blockable(Protocol):
    """Optional ability of a sink: to tell that its broker takes nothing from it for now, although the connection is up."""

    @property
    def blocked(self) -> str:
        """Why, for people; empty while it takes messages. Any thread; does not block."""
        ...


def blocked(sink: object) -> str:
    """Why a sink's broker takes no messages although it is connected; empty while it does, or if the sink cannot tell. Any thread; does not block."""
    return sink.blocked if isinstance(sink, Blockable) else ""


@runtime_checkable
class Observable(Protocol):
    """An adapter that can listen at a destination, for `delaybridge observe` and `doctor`."""

    def tap(self, options: Any, address: str) -> Source:
        """A source of copies of what arrives at `address` from now on; takes nothing away from the real consumers where the broker allows it."""
        ...


@runtime_checkable
class Trailing(Protocol):
    """Optional ability of a tap: to tell that it is behind, as when somebody's open transaction hides what arrived."""

    @property
    def behind(self) -> bool:
        """Whether something that arrived more than a second ago has not been given yet. Any thread; does not block.

        Transactions that open and end all the time do not make it so.
        """
        ...


@runtime_checkable
class Producing(Protocol):
    """Optional ability of an adapter whose sink treats a delay header otherwise than a producer on this broker does."""

    def producer(self, options: Any, route: Any) -> Sink:
        """A sink for what somebody sends as a producer of this route (its validated `from` section) would, delay headers included."""
        ...
