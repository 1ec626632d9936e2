"""`plan`, `apply`, `doctor` and `apply --undo` for routes that read from Kafka, on a real one."""

from __future__ import annotations

import contextlib
import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from brokers.common import wait_until
from brokers.kafka import admin, create_topic
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import MessageSizeTooLargeError

from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.kafka import Endpoint, Kafka
from delaybridge.adapters.kafka.cluster import Topic, opened
from delaybridge.adapters.kafka.cluster.groups import Groups
from delaybridge.adapters.kafka.interception import RETENTION, KafkaInterception
from integration.daemon import Daemon
from integration.stores import in_time_index

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Iterator, Sequence

    from delaybridge.adapters.preparing import Finding
    from integration.stores import Waiting


class Stage:
    """Topics and a suffix of our own on a shared broker."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = f"orders-{secrets.token_hex(4)}"
        self.suffix = f".late-{secrets.token_hex(4)}"
        self.ingress = self.name + self.suffix
        self.group = f"group-{secrets.token_hex(4)}"
        self.options = Kafka(bootstrap_servers=url, delayed_suffix=self.suffix)

    def interception(self, topic: str | tuple[str, ...] = "") -> KafkaInterception:
        return KafkaInterception(self.options, [Endpoint(topic=topic or self.ingress, group=self.group)])

    def topics(self) -> dict[str, Topic]:
        with opened(self.options) as cluster:
            return cluster.topics(cluster.names())

    def send(self, topic: str, count: int = 1) -> None:
        with KafkaProducer(bootstrap_servers=self.url) as producer:
            for number in range(count):
                producer.send(topic, b"%d" % number, b"k", [("x-delay", b"60000")]).get(30)

    def take(self, topic: str, partitions: int) -> None:
        """Commit everything, as a bridge does that has stored it."""
        with contextlib.closing(KafkaConsumer(bootstrap_servers=self.url, group_id=self.group, enable_auto_commit=False)) as consumer:
            assigned = [TopicPartition(topic, number) for number in range(partitions)]
            ends = consumer.end_offsets(assigned)
            consumer.assign(assigned)
            consumer.commit({each: OffsetAndMetadata(end, "", -1) for each, end in ends.items()})


@pytest.fixture
def stage(kafka: Any) -> Stage:
    return Stage(kafka.url)


def problems(findings: Sequence[Finding]) -> list[str]:
    return [finding.what for finding in findings if not finding.ok]


def test_plan_changes_nothing_and_shows_a_command(stage: Stage) -> None:
    create_topic(stage.url, stage.name, 3)
    (step,) = stage.interception().plan()
    assert not step.done
    assert f"--create --topic {stage.ingress} --partitions 3 --replication-factor 1" in step.command
    assert f"--config=retention.ms={RETENTION}" in step.command
    assert stage.ingress not in stage.topics()


def test_plan_names_a_destination_that_does_not_exist_yet(stage: Stage) -> None:
    (step,) = stage.interception().plan()
    assert f"`{stage.name}` does not exist: create it first" in step.what
    assert (step.done, step.command) == (False, "")
    assert stage.interception().apply() == [step], "with how many partitions is not known"
    assert stage.ingress not in stage.topics()
    missing = next(finding for finding in stage.interception().check() if finding.what == f"topic `{stage.ingress}` does not exist")
    assert missing.fix.startswith(f"`{stage.name}` does not exist: create it first"), "`apply` would refuse"
    (step,) = stage.interception(stage.name).plan()
    assert "does not exist" not in step.what


def test_apply_makes_an_ingress_topic_as_its_destination_is(stage: Stage) -> None:
    create_topic(stage.url, stage.name, 3, max_message_bytes="4000000", min_insync_replicas="1", retention_ms="1000")
    assert all(step.done for step in stage.interception().apply())
    made = stage.topics()[stage.ingress]
    assert made.partitions == 3
    assert made.own == {
        "cleanup.policy": "delete", "message.timestamp.type": "LogAppendTime", "retention.bytes": "-1", "retention.ms": str(RETENTION),
        "max.message.bytes": "4000000", "min.insync.replicas": "1",
    }  # fmt: skip
    assert stage.interception().apply() == stage.interception().plan()
    assert stage.topics()[stage.ingress] == made


def test_a_topic_that_exists_is_left_as_it_is(stage: Stage) -> None:
    create_topic(stage.url, stage.ingress, 2, retention_ms="-1")
    before = stage.topics()[stage.ingress]
    assert all(step.done for step in stage.interception().apply())
    assert stage.topics()[stage.ingress] == before


def test_a_topic_without_the_suffix_is_made_as_the_cluster_makes_topics(stage: Stage) -> None:
    assert all(step.done for step in stage.interception(stage.name).apply())
    assert stage.topics()[stage.name].partitions == 1


def test_a_pattern_shows_what_it_matches(stage: Stage) -> None:
    create_topic(stage.url, stage.ingress)
    (step,) = stage.interception(f"^orders-.*{stage.suffix.replace('.', chr(92) + '.')}").apply()
    assert step.done
    assert step.what.endswith(f"now: {stage.ingress}")


def test_undo_deletes_what_apply_made_once_everything_in_it_is_taken(stage: Stage) -> None:
    create_topic(stage.url, stage.name, 2)
    stage.interception().apply()
    stage.send(stage.ingress, 3)
    (step,) = stage.interception().undo()
    assert not step.done
    assert "3 records in it were not taken yet" in step.what
    assert "max.message.bytes" not in stage.topics()[stage.ingress].own
    stage.send(stage.ingress)
    stage.take(stage.ingress, 2)
    (step,) = stage.interception().undo()
    assert step.done
    assert stage.ingress not in stage.topics()
    assert stage.name in stage.topics()
    assert [step.done for step in stage.interception().undo()] == [True]


def test_undo_gives_no_producer_the_time_to_lose_a_message(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.interception().apply()
    look = Groups.waiting

    def meanwhile(self: Groups, group: str, topics: Collection[Topic]) -> Counter[str]:
        waiting = look(self, group, topics)
        for topic in topics:
            with pytest.raises(MessageSizeTooLargeError):
                stage.send(topic.name)
        return waiting

    monkeypatch.setattr(Groups, "waiting", meanwhile)
    assert [step.done for step in stage.interception().undo()] == [True]


def test_an_undo_that_fails_leaves_the_topic_open(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    create_topic(stage.url, stage.name)
    stage.interception().apply()

    def broken(*_: object) -> int:
        raise NotConnected("gone")

    monkeypatch.setattr(Groups, "waiting", broken)
    with pytest.raises(NotConnected):
        stage.interception().undo()
    stage.send(stage.ingress)


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_that_ends_while_undo_looks_comes_to_its_end(stage: Stage, monkeypatch: pytest.MonkeyPatch, committed: bool) -> None:
    """Where Kafka may not write its end, what others wrote behind it is shown to nobody until the broker is restarted."""
    create_topic(stage.url, stage.name, 1)
    stage.interception().apply()
    producer = confluent_kafka.Producer({"bootstrap.servers": stage.url, "transactional.id": stage.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(stage.ingress, b"v", b"k", headers={"x-delay": "1h"})
    assert producer.flush(30) == 0
    look = Groups.waiting

    def ends_meanwhile(self: Groups, group: str, topics: Collection[Topic]) -> Counter[str]:
        (producer.commit_transaction if committed else producer.abort_transaction)(30)
        return look(self, group, topics)

    monkeypatch.setattr(Groups, "waiting", ends_meanwhile)
    assert [step.done for step in stage.interception().undo()] == [False]
    with opened(stage.options) as cluster:

        def has_ended() -> bool:
            owner = cluster.transactions.last(stage.name)
            return owner is not None and owner.state.startswith("Complete")

        wait_until(has_ended, "the transaction to end", 30)


@pytest.mark.parametrize("other", ["{}", "^{}$"])
def test_undo_leaves_what_the_group_of_another_route_has_not_taken(stage: Stage, other: str) -> None:
    create_topic(stage.url, stage.name, 1)
    second = Endpoint(topic=other.format(stage.ingress), group=f"{stage.group}-2")
    interception = KafkaInterception(stage.options, [second, Endpoint(topic=stage.ingress, group=stage.group)])
    interception.apply()
    stage.send(stage.ingress)
    stage.take(stage.ingress, 1)
    assert any("1 record to take" in problem and second.group in problem for problem in problems(interception.check()))
    assert [step.done for step in interception.undo()] == [False]
    assert stage.ingress in stage.topics()


def test_undo_leaves_what_is_in_a_topic_that_was_made_anew_whatever_was_committed_of_the_earlier_one(stage: Stage) -> None:
    create_topic(stage.url, stage.name, 1)
    stage.interception().apply()
    stage.send(stage.ingress, 2)
    stage.take(stage.ingress, 1)
    assert [step.done for step in stage.interception().undo()] == [True]
    stage.interception().apply()
    stage.send(stage.ingress)
    with contextlib.closing(admin(stage.url)) as client:
        earlier = OffsetAndMetadata(2, f"of topic {'0f' * 16}", -1)
        client.alter_group_offsets(stage.group, {TopicPartition(stage.ingress, 0): earlier})
    assert [step.done for step in stage.interception().undo()] == [False]


@pytest.mark.parametrize("closed", ["78", "0"], ids=["", "by an earlier version"])
def test_an_undo_that_was_killed_is_found_and_mended(stage: Stage, closed: str) -> None:
    create_topic(stage.url, stage.name)
    stage.interception().apply()
    with opened(stage.options) as cluster:
        cluster.alter(stage.ingress, "max.message.bytes", closed)
    assert any("takes no messages" in problem for problem in problems(stage.interception().check()))
    assert [step.done for step in stage.interception().plan()] == [False]
    assert [step.done for step in stage.interception().apply()] == [True]
    stage.send(stage.ingress)
    stage.take(stage.ingress, 1)
    with opened(stage.options) as cluster:
        cluster.alter(stage.ingress, "max.message.bytes", closed)
    assert [step.done for step in stage.interception().undo()] == [True]


def test_undo_leaves_what_somebody_else_made(stage: Stage) -> None:
    create_topic(stage.url, stage.ingress)
    (step,) = stage.interception().undo()
    assert not step.done
    assert "not deleted" in step.what
    assert stage.ingress in stage.topics()


def test_check_finds_missing_topics(stage: Stage) -> None:
    assert f"topic `{stage.ingress}` does not exist" in problems(stage.interception().check())
    create_topic(stage.url, stage.ingress)
    assert f"topic `{stage.ingress}` leads to `{stage.name}`, which does not exist" in problems(stage.interception().check())


def test_check_finds_partitions_that_differ_and_gives_the_command_that_mends_it(stage: Stage) -> None:
    create_topic(stage.url, stage.name, 3)
    create_topic(stage.url, stage.ingress, 2)
    (found,) = [each for each in stage.interception().check() if f"has 2 partitions and `{stage.name}` 3" in each.what]
    assert found.fix == f"kafka-topics.sh --bootstrap-server {stage.url} --alter --topic {stage.ingress} --partitions 3"


@pytest.mark.parametrize(
    ("setting", "value", "word", "mended"),
    [
        ("retention_ms", "3600000", "keeps records for 0.0417 days", "retention.ms=1209600000"),
        ("retention_bytes", "1000", "drops records above 1000 bytes", "retention.bytes=-1"),
        ("cleanup_policy", "compact", "is compacted", "cleanup.policy=delete"),
        (
            "message_timestamp_type",
            "CreateTime",
            "a delay counts from the time that its producer gives a record",
            "message.timestamp.type=LogAppendTime",
        ),
    ],
)
def test_check_finds_whatever_lets_kafka_drop_what_the_bridge_has_not_taken_or_deliver_it_early(
    stage: Stage, setting: str, value: str, word: str, mended: str
) -> None:
    create_topic(stage.url, stage.name)
    create_topic(stage.url, stage.ingress, 1, 1, **{setting: value})
    (found,) = [each for each in stage.interception().check() if word in each.what]
    entity = f"--entity-type topics --entity-name {stage.ingress}"
    assert found.fix == f"kafka-configs.sh --bootstrap-server {stage.url} --alter {entity} --add-config {mended}"


def test_check_finds_an_ingress_topic_that_nobody_reads(stage: Stage) -> None:
    create_topic(stage.url, f"stray{stage.suffix}")
    assert f"topic `stray{stage.suffix}` is named as an ingress topic, and no route reads it" in problems(stage.interception().check())


def test_an_ingress_topic_of_another_bridge_is_no_problem(stage: Stage) -> None:
    """Else the doctors of two bridges on one cluster could never be content."""
    stray = f"stray{stage.suffix}"
    create_topic(stage.url, stray)
    with contextlib.closing(
        KafkaConsumer(stray, bootstrap_servers=stage.url, group_id="another", auto_offset_reset="earliest")
    ) as consumer:
        stage.send(stray, 1)
        wait_until(lambda: bool(consumer.poll(200)), "the record")
        consumer.commit()
    findings = stage.interception().check()
    assert f"topic `{stray}` is read by others: another" in [each.what for each in findings if each.ok]


def test_check_says_that_no_bridge_runs_and_what_waits_for_it(stage: Stage) -> None:
    create_topic(stage.url, stage.name)
    stage.interception().apply()
    stage.send(stage.ingress, 2)
    assert problems(stage.interception().check()) == [f"group `{stage.group}` has no consumers, and 2 records to take"]


@pytest.mark.usefixtures("collected")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_broker_that_does_not_answer_is_said_so(stage: Stage) -> None:
    nobody = KafkaInterception(Kafka(bootstrap_servers="127.0.0.1:1", connection_timeout=1), [Endpoint(topic=stage.ingress)])
    for ask in (nobody.plan, nobody.apply, nobody.undo, nobody.check, nobody.probe):
        with pytest.raises(NotConnected):
            ask()


# --- the commands ---


@pytest.fixture
def daemon(stage: Stage, waiting: Waiting, tmp_path: Path) -> Iterator[Daemon]:
    """Not started yet."""
    source = {"broker": "kafka", "topic": stage.ingress, "group": stage.group}
    broker = {"type": "kafka", "bootstrap_servers": stage.url, "delayed_suffix": stage.suffix}
    settings = {"brokers": {"kafka": broker}, "routes": [{"name": "r", "from": source, "to": {"broker": "kafka"}}]}
    with Daemon(tmp_path, waiting(settings)) as made:
        yield made


@in_time_index("the commands are asked about one broker", "kafka")
def test_the_commands_set_everything_up_prove_it_and_take_it_back(stage: Stage, daemon: Daemon) -> None:
    create_topic(stage.url, stage.name, 3)
    plan = daemon.run("plan", "--broker", "kafka", "--output", "json")
    assert not any(step["done"] for step in json.loads(plan.stdout))
    assert daemon.run("doctor", "--broker", "kafka").returncode == 1
    assert daemon.run("apply", "--broker", "kafka").returncode == 0
    daemon.start()
    doctor = daemon.run("doctor", "--broker", "kafka")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert f"a probe through topic `{stage.ingress}`, delayed by 300 ms, came back" in doctor.stdout
    assert "kafka: no transaction hangs in the " in doctor.stdout
    with contextlib.closing(admin(stage.url)) as client:
        assert [name for name in client.list_topics() if name.startswith("delaybridge.doctor.")] == []
    assert daemon.terminate() == 0
    undo = daemon.run("apply", "--undo", "--broker", "kafka")
    assert undo.returncode == 0, undo.stdout + undo.stderr
    assert stage.ingress not in stage.topics()


def test_a_probe_that_does_not_come_back_is_a_finding(stage: Stage) -> None:
    create_topic(stage.url, stage.name)
    stage.interception().apply()
    (finding,) = stage.interception().probe()
    assert not finding.ok
    assert "did not come back within 10 s" in finding.what


def test_a_topic_that_others_read_as_well_is_not_probed(stage: Stage) -> None:
    create_topic(stage.url, stage.name)
    shop = Stage(stage.url)
    shop.take(stage.name, 1)
    (finding,) = stage.interception(stage.name).probe()
    assert finding.ok
    assert finding.what == f"no probe was sent through topic `{stage.name}`: {shop.group} would read it as well"
