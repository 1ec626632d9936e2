"""Finds for `doctor`, over the management API, policies that make level queues lose messages, and levels that no bridge reads any more."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ...core.durations import parse_duration
from ..preparing import Finding
from .ingress import ENOUGH, LIMITS, REDELIVERIES, policies
from .level_queues import OUT, queues

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..levelled import Level
    from .management import Queue


def findings(there: Mapping[str, Queue], levels: Sequence[Level]) -> list[Finding]:
    """A finding for each thing that is wrong; `levels` begin with level 0, whose name is the prefix and `.0`."""
    return [*_losses(there, levels), *_left_behind(there, levels)]


def _losses(there: Mapping[str, Queue], levels: Sequence[Level]) -> Iterator[Finding]:
    """A finding for each limit that a policy sets, which names the first queue only: a policy matches many, as a rule."""
    names: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for level in levels:
        for wanted in queues(level):
            queue = there.get(wanted.name)
            if queue is not None:
                for limit, what in _limits(queue, wanted.arguments):
                    names[limit, what, policies(queue)].append(wanted.name)
    for (limit, what, policy), (first, *others) in names.items():
        more = f" (and {len(others)} more level queues)" if others else ""
        fix = f"take `{limit}` out of policy {policy}, or see that it does not match these queues"
        yield Finding(False, f"queue `{first}`{more} {what} (`{limit}` in policy {policy})", fix)


def _limits(queue: Queue, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The limits that policies set on a queue, and what each does.

    Where messages only wait, a shorter `message-ttl` does no harm: what is not due hops again.
    """
    for limit, what in LIMITS.items():
        if limit in queue.defined and f"x-{limit}" not in arguments:
            yield limit, what.format(queue.defined[limit])
    most = queue.defined.get("delivery-limit")
    if isinstance(most, int) and 0 <= most < ENOUGH:
        yield "delivery-limit", REDELIVERIES.format(most)


def _left_behind(there: Mapping[str, Queue], levels: Sequence[Level]) -> Iterator[Finding]:
    """A finding for each level with messages that is not in the table of levels any more; none where bridges with another table read it."""
    prefix = levels[0].name.removesuffix("0")
    for name in sorted({name.removesuffix(OUT) for name in there if name.startswith(prefix)} - {level.name for level in levels}):
        found = [there[each] for each in (name, name + OUT) if each in there]
        waiting = sum(queue.messages or 0 for queue in found)
        if waiting and _is_level(name.removeprefix(prefix)) and not any(queue.consumers for queue in found):
            yield Finding(
                False,
                f"{waiting} messages wait at level `{name}`, which is not in the table of levels: no bridge takes them",
                "put the level back into `store.levels`, and restart a bridge, until it is empty",
            )


def _is_level(name: str) -> bool:
    try:
        return parse_duration(name) > 0
    except ValueError:
        return False
