"""Messages to Kafka topics, confirmed by all in-sync replicas, each once per connection (idempotence), in order for each partition.

    topic unknown                        BackOff(unroutable)            known within about 200 ms; no other topic waits for it
    topic's name impossible              Rejected(bad_destination)
    not allowed                          BackOff(refused_by_broker)
    too few replicas, no leader, for 3 s    the same, for the message's partition only; after `delivery_timeout` where the message may have been taken
    time out of range, as it is this machine's clock                    BackOff(refused_by_broker)
    larger than the topic takes          Rejected(too_large)
    invalid (no key in a compacted topic, policy)                       Rejected(rejected_by_broker)
    no answer for `delivery_timeout`     NotConnected                   it may have been delivered

kafka-python retries what is safe to retry until then. What the caller leaves unconfirmed is in memory once.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import structlog
from kafka import TopicPartition
from kafka.partitioner.default import murmur2
from kafka.util import ensure_valid_topic_name

from ....core.reasons import Reason
from ....core.targets import ANY
from ...base import BackOff, NotConnected, Rejected
from ...clock import wall_clock
from ..link import Caught, Pulse, translated
from ..wire.headers import tail
from .sender import Accumulator, Delivery, Numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ....core.message import Message
    from ...base import Confirm, Outcome, Outgoing
    from ..options import Kafka
    from ..wire.batches import Prepared

log = structlog.get_logger()

_LARGEST = 96 << 20  # a broker closes the connection of a request of 100 MiB
_REQUEST = 16 << 20  # batches for one broker that share a request
_VERDICT = 2  # metadata answers without a topic, until it counts as missing: the first one may have been asked for before
_LOOK = 1.0  # seconds between two looks for what has no outcome
_AVOIDED = 300.0  # seconds for which messages without a key go to other partitions than one that has refused, and has taken nothing since
_IDLE = 300.0  # seconds without a message, until the cluster is not asked about a topic any more


class _Unknown:
    """Messages for a topic of which the cluster has not told us yet, or no longer does: there some may wait in the accumulator, too."""

    def __init__(self) -> None:
        self.messages: list[Outgoing] = []
        self.answers = 0


class Publisher:
    """One connection. `submit` is called by the lane's thread, `_heard` by the sender's."""

    DELIVERY = Delivery
    PACE = 100  # ms between two tries of a request

    def __init__(
        self,
        configs: dict[str, Any],
        confirm: Confirm,
        timeout: float,
        delivery_timeout: float,
        lost: Callable[[], None] | None = None,
        renewed: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._confirm = confirm
        self._timeout = timeout
        self._lock = threading.Lock()
        self._unknown: dict[str, _Unknown] = {}
        self._used: dict[str, float] = {}
        self._failed: NotConnected | None = None
        self._longest = 2 * delivery_timeout  # by then nothing is under way
        self._idle = max(_IDLE, self._longest)
        self._looked = time.monotonic()
        caught = Caught(lost, renewed)
        with caught.opening():
            self._open(caught, configs, timeout, delivery_timeout)

    def _open(self, caught: Caught, configs: dict[str, Any], timeout: float, delivery_timeout: float) -> None:
        client = caught(**configs)
        manager = client._manager  # noqa: SLF001 - as KafkaProducer does
        if manager.broker_version_data is None or not manager.bootstrapped:
            manager.bootstrap(timeout * 1000)
        self._cluster = client.cluster
        self._numbers = self._numbered(api_version=manager.broker_version, metadata=client.cluster)
        self._accumulator = Accumulator(
            self._confirm,
            self._cluster,
            transaction_manager=self._numbers,
            request_timeout_ms=configs["request_timeout_ms"],
            delivery_timeout_ms=int(delivery_timeout * 1000),
        )
        self._sender = self.DELIVERY(
            client, client.cluster, self._accumulator,
            client_id=configs["client_id"], acks=-1, guarantee_message_order=True, max_request_size=_REQUEST,
            transaction_manager=self._numbers, request_timeout_ms=configs["request_timeout_ms"], retry_backoff_ms=self.PACE,
        )  # fmt: skip
        self._pulse = Pulse(client, timeout)
        client.cluster.add_listener(self._heard)
        self._sender.daemon = True
        self._sender.start()

    def _numbered(self, **known: Any) -> Numbers:
        return Numbers(**known)

    def check(self) -> None:
        """Raises NotConnected where nothing can be sent any more."""
        if self._failed is not None:
            raise self._failed
        if not self._sender.is_alive():
            raise NotConnected("the sender has stopped")
        if self._numbers.has_fatal_error():
            raise NotConnected(f"Kafka lets this producer send no more: {self._numbers.last_error!r}")
        self._pulse.check()
        self._look()

    def _look(self) -> None:
        """The sender ends what is under way after `delivery_timeout`. What it dropped, with an error that it only logged, has no end but by `close`."""
        now = time.monotonic()
        if now - self._looked >= _LOOK:
            self._looked = now
            if self._accumulator.overdue(now - self._longest):
                self._failed = NotConnected(f"the sender has left messages without an answer for {self._longest:g} s")
                raise self._failed

    def submit(self, messages: Sequence[Outgoing]) -> None:
        """Hand messages to the sender; those for unknown topics wait until it has asked."""
        by_topic: dict[str, list[Outgoing]] = defaultdict(list)
        for outgoing in messages:
            by_topic[outgoing.address].append(outgoing)
        refused: list[Outcome] = []
        now = time.monotonic()
        with self._lock:
            for topic, group in by_topic.items():
                self._used[topic] = now
                known = topic not in self._unknown and topic in self._cluster._topics  # noqa: SLF001 - as in _heard
                partitions = self._cluster._partitions.get(topic) if known else None  # noqa: SLF001 - without a copy
                if partitions:
                    self._enqueue(topic, sorted(partitions), group, refused)
                else:
                    self._ask(topic, group, refused)
        self._sender.wakeup()
        if refused:
            self._confirm(refused)

    def _ask(self, topic: str, messages: list[Outgoing], refused: list[Outcome]) -> None:
        unknown = self._unknown.get(topic)
        if unknown is None:
            try:
                check_topic(topic)
            except Rejected as error:
                refused.extend((outgoing.tag, error) for outgoing in messages)
                return
            unknown = self._unknown[topic] = _Unknown()
            self._sender.add_topic(topic)
            self._cluster.request_update()
        unknown.messages.extend(messages)

    def _anywhere(self, topic: str, partitions: list[int]) -> int:
        """One that has a leader and has not just refused, for all messages of a batch that have no key; any where there is none."""
        there = self._cluster._partitions[topic]  # noqa: SLF001 - as in _heard
        refused, lately = self._accumulator.refused, time.monotonic() - _AVOIDED

        def takes(partition: int) -> bool:
            return there[partition].leader_id >= 0 and refused.get(TopicPartition(topic, partition), lately) <= lately

        drawn = random.choice(partitions)  # noqa: S311 - it keeps no secret
        if takes(drawn):
            return drawn
        return random.choice([each for each in partitions if takes(each)] or partitions)  # noqa: S311 - as above

    def _enqueue(self, topic: str, partitions: list[int], messages: Sequence[Outgoing], refused: list[Outcome]) -> None:
        now = wall_clock()
        anywhere = self._anywhere(topic, partitions)
        prepared: dict[int, list[Prepared]] = defaultdict(list)
        for outgoing in messages:
            try:
                record = tail(outgoing.message)
                if len(record) > _LARGEST:
                    raise Rejected(Reason.TOO_LARGE, f"a record of {len(record)} bytes")  # noqa: TRY301 - as `tail` does
            except Rejected as reason:
                refused.append((outgoing.tag, reason))
            else:
                prepared[_partition(outgoing.message, partitions, anywhere)].append((outgoing.tag, record, now))
        for partition, group in prepared.items():
            self._to_partition(TopicPartition(topic, partition), group)

    def _to_partition(self, partition: TopicPartition, prepared: list[Prepared]) -> None:
        """Send messages whose partition is known."""
        self._accumulator.enqueue(partition, prepared)

    def _heard(self, cluster: Any) -> None:
        """The cluster's state has come. The sender's thread, on which kafka-python would say nothing of what this raises."""
        outcomes: list[Outcome] = []
        self._accumulator.heard()
        with self._lock:
            try:
                self._release(cluster, outcomes)
            except Exception as error:
                log.exception("sink_failed", action="all that is under way is due again, over a new connection")
                self._failed = NotConnected(f"the sink failed: {error!r}")
        if outcomes:
            self._confirm(outcomes)

    def _release(self, cluster: Any, outcomes: list[Outcome]) -> None:
        """Hand over what waited to hear of its topic."""
        for partition in self._accumulator.waiting():
            there = cluster._partitions.get(partition.topic)  # noqa: SLF001 - without a copy
            if not there:
                self._unknown.setdefault(partition.topic, _Unknown())
            elif partition.partition not in there:  # then the key decides, at the next try
                gone = f"topic {partition.topic} was made anew, without partition {partition.partition}"
                self._accumulator.drop(partition, BackOff(Reason.UNROUTABLE, gone))
        for topic, unknown in list(self._unknown.items()):
            refused: list[Outcome] = []
            partitions = cluster._partitions.get(topic)  # noqa: SLF001 - without a copy
            asked = topic in cluster._topics  # noqa: SLF001 - kafka-python takes an impossible name off
            unknown.answers += asked
            if partitions:
                self._enqueue(topic, sorted(partitions), unknown.messages, refused)
            elif topic in cluster.unauthorized_topics or unknown.answers > _VERDICT or (unknown.answers and not asked):
                missing = _missing(topic, cluster)
                self._accumulator.abandon(topic, missing)
                refused += ((outgoing.tag, missing) for outgoing in unknown.messages)
                cluster._topics.discard(topic)  # noqa: SLF001 - else it is asked for ten times a second, for ever
            else:
                cluster.request_update()
                continue
            del self._unknown[topic]
            outcomes += refused
        self._forget_idle(cluster)

    def _forget_idle(self, cluster: Any) -> None:
        """Let go of topics to which nothing was sent for long: kafka-python asks about all that it ever heard of, each time."""
        before = time.monotonic() - self._idle
        for topic in [topic for topic, used in self._used.items() if used < before and topic not in self._unknown]:
            del self._used[topic]
            cluster._topics.discard(topic)  # noqa: SLF001 - as in _heard

    def close(self) -> None:
        """Stop the sender; everything gets its outcome."""
        self._cluster.remove_listener(self._heard)
        self._sender.force_close()
        self._sender.join(self._timeout)
        self._accumulator.abort_batches(NotConnected("the sink was closed"))
        with self._lock:
            unknown, self._unknown = self._unknown, {}
        left = [outgoing.tag for each in unknown.values() for outgoing in each.messages]
        if left:
            self._confirm([(tag, NotConnected("the sink was closed")) for tag in left])


def _missing(topic: str, cluster: Any) -> BackOff:
    if topic in cluster.unauthorized_topics:
        return BackOff(Reason.REFUSED_BY_BROKER, f"the bridge may not describe topic {topic!r}")
    return BackOff(Reason.UNROUTABLE, f"there is no topic {topic!r}")


def _partition(message: Message, partitions: list[int], anywhere: int) -> int:
    """The message's partition among those that there are, which Kafka numbers from 0; `anywhere` where any would do."""
    number = partition_of(message, len(partitions))
    return anywhere if number == ANY else partitions[number]


def partition_of(message: Message, total: int) -> int:
    """The message's own partition where it exists, else by its key as Kafka's default partitioner does, else `ANY`."""
    own = message.properties.partition
    if own is not None and 0 <= own < total:
        return own
    return ANY if message.key is None else int(murmur2(message.key) & 0x7FFFFFFF) % total


def check_topic(topic: str) -> None:
    """Raises Rejected(bad_destination) for what no topic can be called."""
    try:
        ensure_valid_topic_name(topic)
    except (TypeError, ValueError) as error:
        raise Rejected(Reason.BAD_DESTINATION, f"{topic!r}: {error}") from error


class KafkaSink:
    """Publishes to any topic of one cluster."""

    def __init__(self, options: Kafka) -> None:
        self._options = options
        self._publisher: Publisher | None = None

    def connect(self, confirm: Confirm) -> None:
        """See base.Sink."""
        self.close()
        with translated():
            configs = self._options.client("sink")
        options = self._options
        self._publisher = Publisher(configs, confirm, options.connection_timeout, options.delivery_timeout, renewed=options.renewed)

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """See base.Sink. Never blocks. While brokers restart, outcomes stay open, for `delivery_timeout` at most."""
        if self._publisher is None:
            raise NotConnected("the sink is closed")
        self._publisher.check()
        if messages:
            self._publisher.submit(messages)

    def close(self) -> None:
        """See base.Sink."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()
