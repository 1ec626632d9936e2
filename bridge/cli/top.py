"""`delaybridge top`: a daemon's status drawn again and again, and what happens in a second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from .client import ApiError, UnreachableError
from .status import Section, sections
from .tables import grid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from .client import Client


def watch(client: Client, every: float) -> None:
    """Draw until the user interrupts it. The first failure to ask ends it; a later one is shown, and the daemon asked again: it may be restarting."""
    found, rates = client.status(), None
    with Live(screen=True, auto_refresh=False) as screen:
        while True:
            screen.update(page(found, rates), refresh=True)
            time.sleep(every)
            while (later := _ask(client, screen)) is None:
                time.sleep(every)
            rates, found = per_second(found, later), later


def _ask(client: Client, screen: Live) -> dict[str, Any] | None:
    try:
        return client.status()
    except (UnreachableError, ApiError) as error:
        screen.update(Text(f"{error}\n\nAsking again. Ctrl-C to stop."), refresh=True)
        return None


def page(found: dict[str, Any], rates: dict[str, float] | None) -> RenderableType:
    """The status, with the rates where there are any in its summary."""
    summary, *others = sections(found)
    if rates is not None:
        flow = ", ".join(f"{rate:,.1f} {name}" for name, rate in rates.items() if rate) or "nothing"
        summary = summary._replace(rows=[*summary.rows, ["in a second", flow]])
    return Group(*_spaced([summary, *others]))


def _spaced(shown: list[Section]) -> Iterator[RenderableType]:
    for section in shown:
        yield grid(section.headings, section.rows, section.title)
        yield Text(f"{caption}\n" if (caption := section.caption()) else "")


def per_second(before: dict[str, Any], found: dict[str, Any]) -> dict[str, float] | None:
    """What happened in a second between two looks, by the daemon's own clock. None where it was started anew: it counts from 0."""
    seconds = (found["now"] - before["now"]) / 1000
    if before["started"] != found["started"] or seconds <= 0:
        return None
    earlier = _counts(before)
    return {name: max(0, count - earlier.get(name, 0)) / seconds for name, count in _counts(found).items()}


def _counts(found: dict[str, Any]) -> dict[str, int]:
    received = sum(route["received"] for route in found["routes"])
    published = sum(lane["published"] for lane in found["lanes"])
    return {"received": received, **found["events"], "published": published}
