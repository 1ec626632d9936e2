"""The topics of level queues: what `delaybridge apply` makes of them, and how much waits in each.

One topic for each level, of `level_partitions` partitions, with as many replicas as the cluster gives by default. A record is kept for two weeks
longer than its level: so long may all bridges be down. Its time is the one that a bridge gave it: delays do not depend on the brokers' clocks.
It may be as large as a request: what a source gave has to wait somewhere. A level takes nothing from a bridge whose clock is a week slow: Kafka would soon
delete that as old.

What is finished is deleted by the bridges, where they may. Else it would fill disks for these two weeks. And it would come again: only the group's offsets say
that it is finished, and Kafka forgets them when a group has been without members for `offsets.retention.minutes`, 7 days by default.

Beside them stands the log of ids (id_log.py): compacted, in one partition, and in small segments, because only closed ones are compacted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from ...base import AdapterError
from ...preparing import Step
from .. import commands
from ..cluster import opened
from ..interception import RETENTION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...levelled import Level
    from ..cluster import Cluster, Topic
    from ..options import Kafka

FOR_EVER = "-1"
_SWEEP = 10.0
"""Seconds, at most, until a coordinator sees that a transaction's time is over (`transaction.abort.timed.out.transaction.cleanup.interval.ms`)."""
LARGEST = "100000000"  # bytes; a broker takes requests of 100 MiB (`socket.request.max.bytes`)
_COMPACTED = {
    "cleanup.policy": "compact", "message.timestamp.type": "CreateTime", "delete.retention.ms": "86400000",
    "segment.ms": "3600000", "segment.bytes": "67108864", "min.cleanable.dirty.ratio": "0.1",
}  # fmt: skip
_OLD, _REFUSES_OLD = "message.timestamp.before.max.ms", (3, 6)
"""The setting of the age beyond which Kafka refuses a record, and the first version that has it (KIP-937)."""
_NO_LOSS = {"unclean.leader.election.enable": "false"}
"""What a cluster has by default. It is looked at and not set, because some hosted clusters let nobody set it."""
_SPEED = ("segment.ms", "segment.bytes", "min.cleanable.dirty.ratio")
"""Settings that may have other values without harm: they decide how much a bridge has to read at its start."""


def group(level: str) -> str:
    """The consumer group of all bridges that share a level: the level's prefix."""
    return level.rpartition(".")[0]


def settings(level: Level, version: tuple[int, ...]) -> dict[str, str]:
    """What `apply` sets on a cluster of this version. Dead letters stay until somebody takes them away."""
    if level.holds == "ids":
        return _COMPACTED
    kept = {"cleanup.policy": "delete", "retention.bytes": FOR_EVER, "message.timestamp.type": "CreateTime", "max.message.bytes": LARGEST}
    if level.holds == "dead_letters":
        return kept | {"retention.ms": FOR_EVER}
    old = {_OLD: str(RETENTION // 2)} if version >= _REFUSES_OLD else {}
    return kept | {"retention.ms": str(level.wait + RETENTION)} | old


class KafkaLevelQueues:
    """See levelled.LevelDeclaration."""

    counts_taken = True

    def __init__(self, options: Kafka, levels: Sequence[Level]) -> None:
        self._options = options
        self._levels = levels
        # A dead member keeps its partitions for the session, and a transaction that it began hides what follows it for as long: see transactional.py.
        self.held_after_a_kill = options.session_timeout + _SWEEP

    def plan(self) -> list[Step]:
        """See levelled.LevelDeclaration."""
        with opened(self._options) as cluster:
            return self._steps(cluster)

    def apply(self) -> list[Step]:
        """See levelled.LevelDeclaration."""
        with opened(self._options) as cluster:
            there = cluster.topics(self._names, settings=False)
            for level in self._levels:
                if level.name not in there:
                    cluster.create(level.name, self._partitions(level), -1, settings(level, cluster.version))
            return self._steps(cluster)

    def undo(self) -> list[Step]:
        """See levelled.LevelDeclaration. Stop the bridges first: a message that arrives between the last look and the end would be lost."""
        with opened(self._options) as cluster:
            steps = [self._undone(cluster, level) for level in self._levels if level.holds != "ids"]
            for level in self._levels:
                if level.holds == "ids":
                    steps.append(self._undone(cluster, level, needed=not all(step.done for step in steps)))
            return steps

    def depths(self) -> list[int]:
        """See levelled.LevelDeclaration. What a bridge has taken and not finished counts as well, and a transaction's marker as one."""
        with opened(self._options) as cluster:
            waiting: Counter[str] = Counter()
            for prefix, topics in _by_group(cluster.topics(self._names, settings=False)).items():
                waiting += cluster.groups.waiting(prefix, topics)
            return [waiting[name] for name in self._names]

    def trim(self) -> None:
        """See levelled.Trimmable. Dead letters are there for whoever takes them away, and the log of ids is compacted."""
        names = [level.name for level in self._levels if level.holds == "waiting"]
        with opened(self._options) as cluster:
            for prefix, topics in _by_group(cluster.topics(names, settings=False)).items():
                if not cluster.groups.trim(prefix, topics):
                    raise AdapterError(
                        f"what is finished is kept on disk, for its level's wait and 14 days: grant DELETE on topics {prefix}.*"
                    )

    @property
    def _names(self) -> list[str]:
        return [level.name for level in self._levels]

    def _partitions(self, level: Level) -> int:
        return 1 if level.holds == "ids" else self._options.level_partitions

    def _undone(self, cluster: Cluster, level: Level, *, needed: bool | None = None) -> Step:
        """`needed` is said of the log of ids, in which nothing waits: it goes with the last level."""
        what, topic = f"topic `{level.name}` is gone", cluster.topics([level.name], settings=False).get(level.name)
        if topic is None:
            return Step(what, "", True)
        if needed:
            return commands.step(self._options, f"{what}; levels are left that need it", commands.delete(self._options, level.name))
        waiting = cluster.groups.waiting(group(level.name), [topic])[level.name] if needed is None else 0
        if waiting:
            return commands.step(self._options, f"{what}; {waiting} records wait in it", commands.delete(self._options, level.name))
        cluster.delete(level.name)
        return Step(what, "", True)

    def _steps(self, cluster: Cluster) -> list[Step]:
        there = cluster.topics(self._names)
        return [self._step(level, there.get(level.name), settings(level, cluster.version)) for level in self._levels]

    def _step(self, level: Level, topic: Topic | None, wanted: Mapping[str, str]) -> Step:
        what = f"topic `{level.name}` holds {_contents(level)}"
        if topic is None:
            return commands.step(self._options, what, commands.create(self._options, level.name, self._partitions(level), -1, wanted))
        problems = _differs(topic, {**wanted, **_NO_LOSS})
        if not problems:
            return Step(what, "", True)
        return commands.step(
            self._options, f"{what}; it differs in {', '.join(problems)}", commands.alter_settings(self._options, level.name, problems)
        )


def _by_group(topics: Mapping[str, Topic]) -> dict[str, list[Topic]]:
    found: defaultdict[str, list[Topic]] = defaultdict(list)
    for name, topic in topics.items():
        found[group(name)].append(topic)
    return found


def _contents(level: Level) -> str:
    if level.holds == "ids":
        return "what became of ids"
    return "dead letters" if level.holds == "dead_letters" else f"what waits for {level.wait / 1000:g} s"


def _differs(topic: Topic, wanted: Mapping[str, str]) -> dict[str, str]:
    """The settings with which a level would lose, delay or refuse messages. More does no harm; settings that may not be read say nothing."""
    found = {key: value for key, value in topic.settings.items() if key in wanted}
    return {key: wanted[key] for key, value in found.items() if not _serves(key, value, wanted[key])}


def _serves(key: str, value: str, wanted: str) -> bool:
    if key in (*_SPEED, _OLD):  # topics from before this setting was made work as they did
        return True
    if value == wanted or not key.startswith(("retention", "max", "delete.retention")):
        return value == wanted
    return value == FOR_EVER or (wanted != FOR_EVER and int(value) >= int(wanted))
