"""The rule in force, and the one wrapper that all clients share."""

from __future__ import annotations

import contextlib
import functools
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SUFFIX = ".delayed"
_LEGAL = re.compile(r"[A-Za-z0-9._-]+")


class Topic(str):
    """The ingress topic, which knows the topic that was meant: serializers may choose by it. For wrappers of ours; see `plainly`."""

    __slots__ = ("meant",)
    meant: str


class Rule:
    """Where a delayed message goes: `<topic><suffix>`, or the one topic `ingress`. Raises ValueError where no topic can be called so."""

    def __init__(self, suffix: str, ingress: str = "") -> None:
        for name in (ingress or suffix,):
            if not _LEGAL.fullmatch(name):
                raise ValueError(f"{name!r} cannot be part of a topic's name: letters, digits, '.', '_' and '-' can")
        self.suffix = suffix
        self.ingress = ingress

    def topic(self, meant: str) -> str | None:
        """The ingress topic for a message to `meant`; None where that is one itself."""
        if meant == self.ingress or (not self.ingress and meant.endswith(self.suffix)):
            return None
        topic = Topic(self.ingress or meant + self.suffix)
        topic.meant = meant
        return topic


class Current:
    """The rule in force, which producers read at each call."""

    rule: Rule | None = None


def use(rule: Rule | None) -> None:
    """Let this rule hold from the next message on; None: divert nothing."""
    Current.rule = rule


def wrapped(
    send: Callable[..., Any], place: int, partition_place: int, send_delayed: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """A `send(producer, topic, …)` that diverts. `place`, `partition_place`: where headers and partition stand among its arguments, counted from `topic`.

    `send_delayed` sends what carries a delay header, if not `send` itself.
    """
    from .headers import delayed  # noqa: PLC0415 - the core's tables, once a client is there

    send_delayed = send_delayed or send

    @functools.wraps(send)
    def divert(producer: Any, *args: Any, **kwargs: Any) -> Any:
        headers = kwargs.get("headers") or (args[place] if len(args) > place else None)
        if not headers or not delayed(headers):
            return send(producer, *args, **kwargs)
        args, kwargs = _diverted(args, kwargs, headers, place, partition_place)
        try:
            return send_delayed(producer, *args, **kwargs)
        except Exception as error:
            explain(error, topic_of(args, kwargs))
            raise

    return divert


def topic_of(args: tuple[Any, ...], kwargs: dict[str, Any], place: int = 0) -> Any:
    """The topic among the arguments of a call. `place`: where it stands if it is given by place."""
    return args[place] if len(args) > place else kwargs.get("topic")


def plainly(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with plain text for a Topic: clients keep it and answer with it, and what writes answers out (msgspec, PyYAML) takes nothing else."""
    return tuple(map(_plain, args)), {name: _plain(value) for name, value in kwargs.items()}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Topic) else value


def explain(error: Exception, topic: Any) -> None:
    """Names the topic, which is nowhere in the application: of one that is missing kafka-python says after a minute that it has no metadata.

    What is said of the arguments has nothing to do with it.
    """
    if isinstance(topic, Topic) and not isinstance(error, TypeError | ValueError | AssertionError):
        with contextlib.suppress(Exception):  # one that takes no note, such as a frozen dataclass, must stay the error that it is
            error.add_note(
                f"delaybridge diverts this message, which carries a delay header, to {str(topic)!r}: `delaybridge apply` makes it, and its producers need WRITE"
            )


def _diverted(args: Any, kwargs: Any, headers: Any, place: int, partition_place: int) -> tuple[Any, Any]:
    """The arguments with another topic, and, for one shared ingress topic, another header."""
    rule = Current.rule
    meant = topic_of(args, kwargs)
    topic = rule.topic(meant) if rule is not None and isinstance(meant, str) else None
    if rule is None or topic is None:
        return args, kwargs
    changed = {0: topic}
    if rule.ingress:
        from .headers import addressed  # noqa: PLC0415

        partition = kwargs.get("partition", args[partition_place] if len(args) > partition_place else None)
        keeps_partition(rule, meant, partition)
        changed[place] = addressed(headers, meant)
    named = {0: "topic", place: "headers"}
    args = tuple(changed.get(index, value) for index, value in enumerate(args))
    return args, kwargs | {named[index]: value for index, value in changed.items() if index >= len(args)}


def keeps_partition(rule: Rule, meant: str, partition: Any) -> None:
    """Raises ValueError for a message that must go to one partition where only `<topic><suffix>` could keep it."""
    if rule.ingress and partition is not None and partition >= 0:
        raise ValueError(
            f"a delayed message to partition {partition} of {meant!r} cannot go through {rule.ingress!r}, which all topics share: "
            f"use delaybridge.instrument(suffix=…), or leave the partition to the key"
        )
