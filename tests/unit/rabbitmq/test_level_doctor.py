"""What `doctor` finds about level queues on RabbitMQ over its management API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delaybridge.adapters.levelled import Level
from delaybridge.adapters.rabbitmq.level_doctor import findings
from delaybridge.adapters.rabbitmq.management import Queue

if TYPE_CHECKING:
    from delaybridge.adapters.preparing import Finding

LEVELS = [Level("level.0", 0), Level("level.1s", 1_000), Level("level.dead-letters", 0, "dead_letters")]


def found(*queues: Queue) -> list[Finding]:
    return findings({queue.name: queue for queue in queues}, LEVELS)


def under(name: str, **definition: Any) -> Queue:
    return Queue(name, policy="all", effective_policy_definition={key.replace("_", "-"): value for key, value in definition.items()})


@pytest.mark.parametrize("name", ["level.0", "level.1s", "level.1s.out", "level.dead-letters"])
@pytest.mark.parametrize("limit", ["expires", "max_length", "max_length_bytes", "delivery_limit"])
def test_a_policy_by_which_a_level_queue_loses_messages_is_found(name: str, limit: str) -> None:
    (finding,) = found(under(name, **{limit: 5}))
    assert not finding.ok
    assert f"queue `{name}`" in finding.what
    assert "policy `all`" in finding.what
    assert "policy `all`" in finding.fix


def test_a_ttl_does_harm_where_messages_have_waited_and_none_where_it_shortens_a_wait() -> None:
    (finding,) = found(under("level.1s", message_ttl=5), under("level.1s.out", message_ttl=5))
    assert "`level.1s.out` drops what no bridge took within 5 ms" in finding.what


def test_a_policy_that_matches_many_level_queues_is_one_finding() -> None:
    (finding,) = found(under("level.0", max_length=5), under("level.1s", max_length=5), under("level.dead-letters", max_length=5))
    assert finding.what.startswith("queue `level.0` (and 2 more level queues) holds 5 messages")


def test_a_policy_that_drops_nothing_is_not_spoken_of() -> None:
    assert found(under("level.1s", consumer_timeout=5, delivery_limit=-1), Queue("level.1s.out", effective_policy_definition=[])) == []


def test_messages_at_a_level_that_is_not_in_the_table_any_more_are_found() -> None:
    (finding,) = found(Queue("level.5s", messages=2), Queue("level.5s.out", messages=3, consumers=0))
    assert not finding.ok
    assert finding.what == "5 messages wait at level `level.5s`, which is not in the table of levels: no bridge takes them"


@pytest.mark.parametrize(
    "queues",
    [
        (Queue("level.1s.out", messages=3),),
        (Queue("level.5s"), Queue("level.5s.out", messages=0)),
        (Queue("level.5s", messages=2), Queue("level.5s.out", consumers=1)),
        (Queue("level.work", messages=2), Queue("level.ids", messages=2), Queue("5s", messages=2), Queue("level.more.5s", messages=2)),
    ],
    ids=["in the table", "empty", "read by bridges of another table", "no level of this prefix"],
)
def test_other_queues_are_not_taken_for_levels_that_were_left(queues: tuple[Queue, ...]) -> None:
    assert found(*queues) == []
