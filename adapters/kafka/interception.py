"""Interception on Kafka: the ingress topics of all routes that read from one cluster.

A broker of Kafka cannot divert: producers send to `<topic>.delayed` themselves, or under `delaybridge-instrument`. Such a topic has as many
partitions as `<topic>`, because the producer's partitioner chose among so many.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from kafka import errors

from ..preparing import Finding, Step
from . import commands, probe
from .cluster import Topic, opened
from .options import destination

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from .cluster import Cluster
    from .options import Endpoint, Kafka

DAY = 86_400_000
RETENTION = 14 * DAY
"""How long an ingress topic made by `apply` keeps what no bridge has taken: outlives the longest time for which the bridge may be down."""

SHORTEST = 7 * DAY
"""Below this `check` warns: Kafka's own default, which outlives a week-end."""

SETTINGS = {"cleanup.policy": "delete", "message.timestamp.type": "LogAppendTime", "retention.bytes": "-1", "retention.ms": str(RETENTION)}
"""What `apply` sets. The time of the append is when the broker received the message: delays count from it, whatever the producer's clock says."""

INHERITED = ("max.message.bytes", "min.insync.replicas")
"""What an ingress topic takes over from its destination, where that has settings of its own."""

_FENCE = "max.message.bytes"
_CLOSED = "78"
"""As large as the marker that ends a transaction. Where Kafka may not write one, the transaction stays open until the broker is restarted, and whoever reads
what is committed sees nothing behind it. A message with a delay header is larger, unless it has neither key nor body, and name and value of its one header
are eight characters (`x-delay`, `5`).
"""
_FENCES = (_CLOSED, "0")
"""What an `undo` that was interrupted may have left behind; the second one, of an earlier version."""

APPLY = "run `delaybridge apply`"


class Ingress(NamedTuple):
    """A topic that groups read; `destination` is empty where its name does not say one."""

    name: str
    groups: tuple[str, ...]
    destination: str


class KafkaInterception:
    """See preparing.Interception. `endpoints`: the `from` sections."""

    def __init__(self, options: Kafka, endpoints: Sequence[Endpoint]) -> None:
        self._options = options
        self._endpoints = endpoints

    def plan(self) -> list[Step]:
        """See preparing.Interception. A pattern names no topic that could be created: those that exist are shown."""
        with opened(self._options) as cluster:
            return list(self._steps(cluster))

    def apply(self) -> list[Step]:
        """See preparing.Interception. A topic that exists is left as it is, but for what an `undo` that was interrupted left behind.

        One whose destination does not exist is not made: nobody knows with how many partitions, and they cannot be made fewer.
        """
        with opened(self._options) as cluster:
            topics = cluster.topics(_with_destinations(self._named()))
            for one in self._named():
                topic, settings = topics.get(one.name), _settings(topics, one)
                if _of_unknown_shape(topics, one):
                    continue
                if topic is None:
                    cluster.create(one.name, *_shape(topics, one), settings)
                elif _is_closed(topic):
                    cluster.alter(one.name, _FENCE, settings.get(_FENCE))
            return list(self._steps(cluster))

    def undo(self) -> list[Step]:
        """Delete the ingress topics that `apply` made and whose every record is taken. Others stay; their step says why.

        Meanwhile such a topic takes no message (its producers get an error), so that none is lost between the last look and the end.
        """
        with opened(self._options) as cluster:
            return [self._undone(cluster, one) for one in self._named()]

    def _undone(self, cluster: Cluster, one: Ingress) -> Step:
        what, topics = f"topic `{one.name}` is gone", cluster.topics(_with_destinations([one]))
        topic = topics.get(one.name)
        if topic is None:
            return Step(what, "", True)
        command = commands.delete(self._options, one.name)
        settings = _settings(topics, one)
        if not topic.settings:
            return commands.step(self._options, f"{what}; its settings may not be read, so whether `apply` made it is not known", command)
        if topic.own not in (settings, *(settings | {_FENCE: closed} for closed in _FENCES)):
            return commands.step(self._options, f"{what}; `apply` did not make it as it is, so it is not deleted", command)
        with _closed(cluster, one.name, settings.get(_FENCE)):
            for group in one.groups:
                try:
                    waiting = cluster.groups.waiting(group, [topic])[one.name]
                except errors.GroupAuthorizationFailedError:
                    unseen = f"{what}; group `{group}` may not be seen, so whether it is empty is not known"
                    return commands.step(self._options, unseen, command)
                if waiting:
                    return Step(f"{what}; {waiting} records in it were not taken yet: let the bridge run, and try again", "", False)
            cluster.delete(one.name)
        return Step(what, "", True)

    def check(self) -> list[Finding]:
        """See preparing.Interception."""
        with opened(self._options) as cluster:
            names = cluster.names()
            read = self.read(names)
            wanted = _with_destinations(read)
            hidden = cluster.hidden(wanted - names)
            topics = cluster.topics(wanted - hidden)
            findings = [
                Finding(False, f"whether there is a topic `{name}` may not be seen", "grant DESCRIBE on it") for name in sorted(hidden)
            ]
            findings += [finding for one in read if not hidden & {one.name, one.destination} for finding in self._check_topic(topics, one)]
            return [*findings, *self._check_strays(cluster, names, read), *self._check_groups(cluster, topics, read)]

    def probe(self) -> list[Finding]:
        """See preparing.Interception. A topic that others read as well is left out, unless its name says that it is an ingress topic."""
        with opened(self._options) as cluster:
            read = self.read(cluster.names())
            shared = {
                one.name: others
                for one in read
                if not one.destination and (others := cluster.groups.readers(one.name).difference(one.groups))
            }
            names = [one.name for one in read if one.name not in shared]
            skipped = [
                Finding(True, f"no probe was sent through topic `{name}`: {', '.join(sorted(others))} would read it as well")
                for name, others in shared.items()
            ]
            return [*skipped, *(probe.probe(self._options, cluster, names) if names else [])]

    # --- which topics ---

    def _named(self) -> list[Ingress]:
        """Of all routes; each topic once."""
        return [self._ingress(name) for name in dict.fromkeys(name for endpoint in self._endpoints for name in endpoint.topics)]

    def read(self, names: AbstractSet[str]) -> list[Ingress]:
        """Those that are named, and those of these that match a pattern."""
        named = self._named()
        matching = names - {one.name for one in named}
        return [*named, *(self._ingress(name) for name in matching if any(each.matches(name) for each in self._endpoints))]

    def _ingress(self, name: str) -> Ingress:
        """It is read by whoever names it, or has a pattern that does."""
        groups = dict.fromkeys(each.group for each in self._endpoints if each.reads(name))
        return Ingress(name, tuple(groups), destination(name, self._options.delayed_suffix))

    # --- plan ---

    def _steps(self, cluster: Cluster) -> Iterator[Step]:
        topics = cluster.topics(_with_destinations(self._named()))
        yield from (self._step(topics, one) for one in self._named())
        for endpoint in self._endpoints:
            if endpoint.pattern is not None:
                matching = ", ".join(name for name in sorted(cluster.names()) if endpoint.matches(name)) or "none"
                yield Step(f"topics that match `{endpoint.pattern}` are read as soon as they are there; now: {matching}", "", True)

    def _step(self, topics: Mapping[str, Topic], one: Ingress) -> Step:
        partitions, replicas = _shape(topics, one)
        command = commands.create(self._options, one.name, partitions, replicas, _settings(topics, one))
        done = one.name in topics and not _is_closed(topics[one.name])
        what = f"topic `{one.name}` takes in delayed messages{_beside(one, partitions)}"
        return commands.step(self._options, what, "" if _of_unknown_shape(topics, one) else command, done=done)

    # --- check ---

    def _check_topic(self, topics: Mapping[str, Topic], one: Ingress) -> Iterator[Finding]:
        topic, destination = topics.get(one.name), topics.get(one.destination)
        if topic is None:
            refused = _of_unknown_shape(topics, one)
            yield Finding(False, f"topic `{one.name}` does not exist", _first(one) if refused else APPLY)
            return
        problems = [*self._check_destination(topic, one, destination), *self._check_settings(topic)]
        leads = f" leads to `{one.destination}`, and" if one.destination else ""
        yield from problems or [Finding(True, f"topic `{one.name}`{leads} keeps what the bridge has not taken for {_days(topic)}")]

    def _check_destination(self, topic: Topic, one: Ingress, destination: Topic | None) -> Iterator[Finding]:
        if one.destination and destination is None:
            yield Finding(
                False, f"topic `{one.name}` leads to `{one.destination}`, which does not exist", "create it, with as many partitions"
            )
        elif destination is not None and destination.partitions != topic.partitions:
            both = f"topic `{topic.name}` has {topic.partitions} partitions and `{one.destination}` {destination.partitions}"
            text = f"{both}: delayed messages change their partition"
            fewer, more = sorted((topic, destination), key=lambda each: each.partitions)
            yield Finding(False, text, commands.add_partitions(self._options, fewer.name, more.partitions))

    def _check_settings(self, topic: Topic) -> Iterator[Finding]:
        """Whatever lets Kafka drop a record that no bridge has taken, or refuse it; or lets one be delivered too early."""
        if _is_closed(topic):
            yield Finding(
                False, f"topic `{topic.name}` takes no messages: `delaybridge apply --undo` was interrupted", f"{APPLY}, or --undo again"
            )
        if not topic.settings:
            yield Finding(False, f"the settings of topic `{topic.name}` may not be read", "allow the bridge's user DESCRIBE_CONFIGS on it")
            return
        for key, text in _unsafe(topic):
            yield Finding(False, text, commands.alter_settings(self._options, topic.name, {key: SETTINGS[key]}))

    def _check_strays(self, cluster: Cluster, names: Iterable[str], read: Sequence[Ingress]) -> Iterator[Finding]:
        """A cluster that creates topics by itself makes one for any delayed message whose topic has no ingress."""
        known = {one.name for one in read}
        for name in sorted(names):
            if name in known or not destination(name, self._options.delayed_suffix):
                continue
            if others := cluster.groups.readers(name):
                yield Finding(True, f"topic `{name}` is read by others: {', '.join(sorted(others))}")
            else:
                fix = "add it to a route's `topic`; or delete it, if its messages are of no use any more"
                yield Finding(False, f"topic `{name}` is named as an ingress topic, and no route reads it", fix)

    def _check_groups(self, cluster: Cluster, topics: Mapping[str, Topic], read: Sequence[Ingress]) -> Iterator[Finding]:
        for group in dict.fromkeys(endpoint.group for endpoint in self._endpoints):
            theirs = [topics[one.name] for one in read if group in one.groups and one.name in topics]
            try:
                members = cluster.groups.members(group)
                waiting = cluster.groups.waiting(group, theirs).total()
            except errors.GroupAuthorizationFailedError:  # what was found of its topics is told all the same
                yield Finding(False, f"group `{group}` may not be seen", "allow the bridge's user READ on it")
                continue
            text = f"group `{group}` has {members or 'no'} consumer{'' if members == 1 else 's'}, and {waiting} record{'' if waiting == 1 else 's'} to take"
            yield Finding(members > 0, text, "start the bridge: `delaybridge run`")


@contextlib.contextmanager
def _closed(cluster: Cluster, topic: str, largest: str | None) -> Iterator[None]:
    """Let a topic take no message; afterwards, if it is still there, messages up to `largest` bytes again."""
    cluster.alter(topic, _FENCE, _CLOSED)
    try:
        yield
    finally:
        if cluster.topics([topic], settings=False):
            cluster.alter(topic, _FENCE, largest)


def _with_destinations(some: Iterable[Ingress]) -> set[str]:
    return {name for one in some for name in (one.name, one.destination) if name}


def _is_closed(topic: Topic) -> bool:
    return topic.own.get(_FENCE) in _FENCES


def _of_unknown_shape(topics: Mapping[str, Topic], one: Ingress) -> bool:
    """Whether it is to be made as a topic that is not there either."""
    return one.name not in topics and bool(one.destination) and one.destination not in topics


def _shape(topics: Mapping[str, Topic], one: Ingress) -> tuple[int, int]:
    """Partitions and replicas, as the destination has them; -1, as the cluster gives them, where there is none."""
    destination = topics.get(one.destination)
    return (-1, -1) if destination is None else (destination.partitions, destination.replicas)


def _beside(one: Ingress, partitions: int) -> str:
    if partitions > 0:
        return f", with the {partitions} partitions of `{one.destination}`"
    return f"; {_first(one)}" if one.destination else ""


def _first(one: Ingress) -> str:
    """What is to be done before `apply` can make it."""
    own = f"or, where the route leads elsewhere, `{one.name}` yourself"
    return f"`{one.destination}` does not exist: create it first, for both should have as many partitions, {own}"


def _settings(topics: Mapping[str, Topic], one: Ingress) -> dict[str, str]:
    destination = topics.get(one.destination)
    return SETTINGS | ({} if destination is None else {key: destination.own[key] for key in INHERITED if key in destination.own})


def _unsafe(topic: Topic) -> Iterator[tuple[str, str]]:
    """The settings that differ from SETTINGS in a way that does harm, and which."""
    settings = topic.settings
    if "compact" in settings["cleanup.policy"]:
        yield "cleanup.policy", f"topic `{topic.name}` is compacted: of two delayed messages with one key the first may be dropped"
    if "delete" in settings["cleanup.policy"] and 0 <= int(settings["retention.ms"]) < SHORTEST:
        yield "retention.ms", f"topic `{topic.name}` keeps records for {_days(topic)}: if the bridge is down for longer, they are lost"
    if settings["message.timestamp.type"] != SETTINGS["message.timestamp.type"]:
        told = f"in topic `{topic.name}` a delay counts from the time that its producer gives a record: it may be of an hour ago"
        yield "message.timestamp.type", told
    if int(settings["retention.bytes"]) >= 0:
        told = f"topic `{topic.name}` drops records above {settings['retention.bytes']} bytes in a partition, taken or not"
        yield "retention.bytes", told


def _days(topic: Topic) -> str:
    milliseconds = int(topic.settings["retention.ms"])
    return "ever" if milliseconds < 0 or topic.settings["cleanup.policy"] == "compact" else f"{milliseconds / DAY:.3g} days"
