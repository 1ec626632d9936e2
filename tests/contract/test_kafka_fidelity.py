"""What becomes of Kafka's odd records, on the way in and on the way out."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from brokers.common import wait_until
from brokers.kafka import admin, create_topic, delete_topic

from contract.kafka_user import User, bodies, named, out, receive
from delaybridge.adapters.base import Outgoing
from delaybridge.adapters.clock import wall_clock
from delaybridge.adapters.kafka import adapter
from delaybridge.bridge import observing
from delaybridge.bridge.ledger.observed import Reach
from delaybridge.core import fields
from delaybridge.core.message import Message, Properties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokers.kafka import Broker


@pytest.fixture
def user(kafka: Broker) -> Iterator[User]:
    one = User(kafka.url)
    yield one
    one.close()


HEADERS: dict[str, list[tuple[bytes, bytes | None]]] = {
    "a null value": [(b"a", None), (b"b", b"")],
    "duplicates, in order": [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")],
    "a name that is not UTF-8": [(b"\xff\xfe", b"1")],
    "an empty name": [(b"", b"1")],
    "a long value": [(b"a", secrets.token_bytes(100_000))],
    "a name of 255 bytes": [(b"n" * 255, b"1")],
    "two hundred of them": [(b"%d" % number, b"%d" % number) for number in range(200)],
}


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS)
def test_headers_pass_exactly_in_and_out(user: User, headers: list[tuple[bytes, bytes | None]]) -> None:
    table = fields.table(headers)
    user.sink().publish([Outgoing(b"1", user.topic, Message(b"body", table, key=b"key"))])
    (one,) = receive(user.source(), 1)
    assert (one.message.body, one.message.headers, one.message.key, one.defect) == (b"body", table, b"key", None)


def test_a_clients_headers_arrive_as_it_sent_them(user: User) -> None:
    user.send(b"x", headers=[("x-delay", b"5000"), ("größe", b"\x00\xff"), ("x-delay", b"6000")])
    (one,) = receive(user.source(), 1)
    assert one.message.headers == fields.table([("x-delay", b"5000"), ("größe", b"\x00\xff"), ("x-delay", b"6000")])


def test_a_client_reads_what_the_sink_wrote(user: User) -> None:
    user.sink().publish([out("1", user.topic, b"body", key=b"key", text="größe", number=-5, true=True, nothing=None, float=1.5)])
    (record,) = user.read(1)
    assert (record.key, record.value) == (b"key", b"body")
    assert record.headers == [("text", "größe".encode()), ("number", b"-5"), ("true", b"true"), ("nothing", None), ("float", b"1.5")]


def test_a_header_name_that_is_too_long_is_a_defect_and_stalls_nothing(user: User) -> None:
    user.send(b"before")
    user.send(b"odd", headers=[("n" * 256, b"1"), ("a", b"2")])
    user.send(b"after")
    before, odd, after = receive(user.source(), 3)
    assert (before.defect, after.defect) == (None, None)
    assert odd.defect is not None
    assert odd.defect.reason == "header_damaged"
    assert odd.message.headers == fields.table([("a", b"2")])


@pytest.mark.parametrize("key", [b"key", b"", None])
def test_a_tombstone_stays_a_tombstone(user: User, key: bytes | None) -> None:
    user.sink().publish([Outgoing(b"1", user.topic, Message(None, key=key))])
    (one,) = receive(user.source(), 1)
    assert (one.message.body, one.message.key) == (None, key)
    assert user.read(1)[0].value is None


def test_a_tombstone_that_was_on_a_broker_without_them_is_one_again(user: User) -> None:
    marked: dict[str, Any] = {"x-delay-tombstone": "true"}
    user.sink().publish([out("1", user.topic, b"", key=b"k", **marked), out("2", user.topic, b"body", key=b"k", **marked)])
    empty, full = user.read(2)
    assert (empty.value, empty.headers) == (None, [])
    assert (full.value, full.headers) == (b"body", [("x-delay-tombstone", b"true")])


def test_a_record_is_stamped_now_and_bears_its_first_time_once(user: User) -> None:
    original = 1_700_000_000_123
    properties = Properties(timestamp_ms=original)
    before = time.time_ns() // 1_000_000
    user.sink().publish([out("1", user.topic, b"", properties, **{"x-delay-timestamp": b"5"})])
    (record,) = user.read(1)
    assert before <= record.timestamp <= time.time_ns() // 1_000_000
    assert record.headers == [("x-delay-timestamp", b"%d" % original)]


def test_the_time_of_a_record_is_when_it_was_sent(user: User) -> None:
    sent = time.time_ns() // 1_000_000 - 3_600_000
    user.send(b"x", timestamp_ms=sent)
    (one,) = receive(user.source(), 1)
    assert (one.sent, one.message.properties.timestamp_ms) == (sent, sent)


def test_the_brokers_own_time_counts_where_the_topic_has_it(user: User) -> None:
    topic = named("append")
    create_topic(user.url, topic, message_timestamp_type="LogAppendTime")
    user.send(b"x", topic=topic, timestamp_ms=time.time_ns() // 1_000_000 - 60_000)
    (one,) = receive(user.source(topic), 1)
    assert one.sent is not None
    assert abs(time.time_ns() // 1_000_000 - one.sent) < 30_000


def test_headers_that_mean_properties_are_read_as_such_and_stay(user: User) -> None:
    headers: dict[str, Any] = {
        "content-type": b"text/plain",
        "priority": b"7",
        "expiration": b"soon",
        "message-id": None,
        "reply-to": b"r" * 256,
    }
    user.sink().publish([out("1", user.topic, **headers)])
    (one,) = receive(user.source(), 1)
    properties = one.message.properties
    assert (properties.content_type, properties.priority) == (b"text/plain", 7)
    assert (properties.expiration, properties.message_id, properties.reply_to) == (None, None, None)
    assert one.message.headers == fields.table(headers.items())


def test_what_came_from_kafka_goes_back_without_new_headers(user: User) -> None:
    user.send(b"x", headers=[("content-type", b"text/plain")])
    (one,) = receive(user.source(), 1)
    target = named("target")
    create_topic(user.url, target)
    user.sink().publish([Outgoing(b"1", target, one.message)])
    (record,) = user.read(1, target)
    assert [name for name, _ in record.headers] == ["content-type", "x-delay-timestamp"]


# --- where a record was wanted ---


def test_the_convention_names_the_destination_and_keeps_the_partition(user: User) -> None:
    orders = named("orders")
    create_topic(user.url, orders, 3)
    create_topic(user.url, orders + ".delayed", 3)
    user.send(b"x", topic=orders + ".delayed", partition=2)
    (one,) = receive(user.source(f"^{orders}.delayed"), 1)
    assert (one.address, one.message.properties.partition) == (orders, 2)
    user.sink().publish([Outgoing(b"1", one.address, one.message)])
    assert user.read(1, orders)[0].partition == 2


def test_the_partition_of_another_shape_says_nothing_and_the_key_decides(user: User) -> None:
    orders = named("orders")
    create_topic(user.url, orders, 5)
    create_topic(user.url, orders + ".delayed", 2)
    keys = [b"%d" % number for number in range(20)]
    with user.producer() as producer:
        for key in keys:
            producer.send(orders + ".delayed", key, key=key)
        producer.flush(20)
        wanted = {key: producer._partition(orders, None, None, None, key, None) for key in keys if producer.partitions_for(orders)}
    user.sink().publish([Outgoing(b"1", orders, one.message) for one in receive(user.source(orders + ".delayed"), 20)])
    assert {record.key: record.partition for record in user.read(20, orders)} == wanted


def test_a_partition_that_does_not_exist_gives_way_to_the_key(user: User) -> None:
    user.sink().publish([out("1", user.topic, b"", Properties(partition=7), b"key")])
    assert user.words(1) == {"1": "confirmed"}


def test_a_topic_without_the_suffix_names_no_destination(user: User) -> None:
    user.send(b"x")
    assert receive(user.source(), 1)[0].address == ""


def test_another_suffix_may_be_configured(user: User) -> None:
    user.send(b"x")
    cut = user.topic[-4:]
    assert receive(user.source(delayed_suffix=cut), 1)[0].address == user.topic[:-4]


# --- identity, transactions ---


def test_the_records_of_a_topic_that_was_created_again_have_other_tokens(user: User) -> None:
    user.send(b"old")
    (old,) = receive(user.source(), 1)
    user.close()
    delete_topic(user.url, user.topic)
    create_topic(user.url, user.topic)
    user.send(b"new")
    (new,) = receive(user.source(), 1)
    assert (old.message.body, new.message.body) == (b"old", b"new")
    assert old.token[-12:] == new.token[-12:]
    assert old.token != new.token


def test_an_aborted_transaction_is_not_seen(user: User) -> None:
    with user.producer(transactional_id=named("transaction")) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.send(user.topic, b"%d" % number)
            producer.flush(20)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    source = user.source()
    assert bodies(receive(source, 3)) == ["0", "2", "4"]
    assert source.receive(1, 0.5) is None


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read(user: User, codec: str) -> None:
    with user.producer(compression_type=codec, linger_ms=100) as producer:
        for number in range(100):
            producer.send(user.topic, b"%d" % number, headers=[("a", b"1")])
        producer.flush(20)
    assert bodies(receive(user.source(), 100)) == [str(number) for number in range(100)]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_another_client_s_compressed_records_are_read(user: User, codec: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": user.url, "compression.type": codec, "linger.ms": 100})
    for number in range(100):
        producer.produce(user.topic, b"%d" % number * 1000)
    assert producer.flush(20) == 0
    assert bodies(receive(user.source(), 100)) == [str(number) * 1000 for number in range(100)]


# --- listening ---


def test_a_tap_hears_what_comes_from_now_on_and_takes_nothing_away(user: User) -> None:
    user.send(b"before")
    tap = adapter.tap(user.options(), user.topic)
    tap.connect()
    user.send(b"after")
    assert bodies(receive(tap, 1)) == ["after"]
    tap.close()
    assert bodies(receive(user.source(), 2)) == ["before", "after"]


def test_a_tap_hears_also_what_came_to_a_new_partition_before_it_knew_of_that(user: User) -> None:
    tap = adapter.tap(user.options(), user.topic)
    tap.connect()
    with contextlib.closing(admin(user.url)) as client:
        number = len(client.describe_topics([user.topic])[0]["partitions"])
        client.create_partitions({user.topic: number + 1})
        wait_until(lambda: len(client.describe_topics([user.topic])[0]["partitions"]) == number + 1, "the new partition")
    user.send(b"new", partition=number)
    assert bodies(receive(tap, 1)) == ["new"]
    user.send(b"known", partition=number)
    user.send(b"old", partition=0)
    assert sorted(bodies(receive(tap, 2))) == ["known", "old"]
    tap.close()


def test_an_observer_behind_somebodys_open_transaction_does_not_think_that_it_has_seen_all(user: User) -> None:
    tap = adapter.tap(user.options(), user.topic)
    tap.connect()
    looks, reach = observing.looks(tap, user.topic, 500, wall_clock, time.monotonic), Reach(copies=True)
    reach.looked(next(looks))
    producer = confluent_kafka.Producer({"bootstrap.servers": user.url, "transactional.id": named("other")})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(user.topic, b"open", partition=0)
    producer.flush()
    user.send(b"behind it", partition=0)
    wait_until(lambda: tap.behind, "the tap to know that more is there")
    for _ in range(2):
        reach.looked(next(looks))
    assert wall_clock() - reach.until > 2_000
    stood = reach.until
    producer.commit_transaction()
    came: list[str] = []
    while len(came) < 2 or reach.until == stood:
        reach.looked(look := next(looks))
        came += [each["body"] for each in look.deliveries]
    assert came == ["open", "behind it"]
    tap.close()


def test_an_observer_of_a_topic_into_which_many_write_in_transactions_all_the_time_is_not_behind(user: User) -> None:
    """Something is open in each moment, and nothing is for long."""
    tap = adapter.tap(user.options(), user.topic)
    tap.connect()
    stop = threading.Event()

    def write(number: int) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": user.url, "transactional.id": named(f"writer-{number}"), "linger.ms": 0})
        producer.init_transactions()
        while not stop.is_set():
            producer.begin_transaction()
            producer.produce(user.topic, b"x", partition=0, headers={"x-delay-id": "m", "x-delay-due": str(wall_clock())})
            producer.flush()
            producer.commit_transaction()

    looks, reach = observing.looks(tap, user.topic, 500, wall_clock, time.monotonic), Reach(copies=True)
    with ThreadPoolExecutor(3) as pool:
        writing = [pool.submit(write, number) for number in range(3)]
        began = wall_clock()
        try:
            while reach.until < began + 2_000:
                assert wall_clock() - began < 20_000
                reach.looked(next(looks))
        finally:
            stop.set()
        assert not any(each.exception() for each in writing)
    tap.close()
