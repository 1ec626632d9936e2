"""`delaybridge status` for people."""

from __future__ import annotations

from typing import Any

from pydantic import ByteSize

from ..text import instant
from .tables import duration, table

_HOURS = 12
_ADDRESSES = 20


def print_status(found: dict[str, Any]) -> None:
    """Summary, routes, lanes, what is held back, and where and when most of the rest goes."""
    table((), [[name, value] for name, value in _summary(found).items()])
    route_rows = [[each["name"], each["from"], each["to"], _flow(each), each["received"]] for each in found["routes"]]
    _section("routes", ("ROUTE", "FROM", "TO", "STATE", "RECEIVED"), route_rows)
    lane_rows = [[each["broker"], _connection(each), each["in_flight"], each["published"]] for each in found["lanes"]]
    _section("destinations", ("BROKER", "STATE", "IN FLIGHT", "PUBLISHED"), lane_rows)
    held = [
        [lane["broker"], each["address"], each["attempts"], instant(each["retry_at"]), each["error"]]
        for lane in found["lanes"]
        for each in lane["held"]
    ]
    _section("held back", ("BROKER", "ADDRESS", "ATTEMPTS", "NEXT TRY", "ERROR"), held)
    levels = [
        [each["name"], duration(each["wait"]), _connection(each), _known(each["depth"]), instant(each["first_leaves"])]
        for each in found.get("levels", ())
    ]
    _section("levels", ("QUEUE", "WAIT", "STATE", "MESSAGES", "FIRST LEAVES"), levels)
    busiest = sorted(found["by_address"], key=lambda each: -each["pending"])[:_ADDRESSES]
    _section(
        "pending by address", ("BROKER", "ADDRESS", "PENDING"), [[each["broker"], each["address"], each["pending"]] for each in busiest]
    )
    soonest = sorted(found["by_hour"], key=lambda each: each["hour"])[:_HOURS]
    _section("pending by hour", ("HOUR", "PENDING"), [[instant(each["hour"]), each["pending"]] for each in soonest])


def _summary(found: dict[str, Any]) -> dict[str, Any]:
    store = found["store"]
    free = f"{ByteSize(store['free_bytes']).human_readable(separator=' ')} free"
    return {
        "bridge": f"{found['bridge']} ({found['version']})",
        "configuration": found.get("config") or "none: the in-process broker, or the environment's variables",
        "ready": "yes" if found["ready"] else "no",
        "running for": duration(found["now"] - found["started"]),
        "pending": found["pending"],
        "held back": found["held"],
        "dead letters": found["shelved"],
        "oldest overdue": duration(found["oldest_overdue_ms"]),
        "store in": store.get("path", ""),
        "disk": free if store["room"] else f"{free}: below the limit, intake stands still",
        "since the store was made": ", ".join(f"{count} {event}" for event, count in found["events"].items()),
    }


def _section(title: str, headings: tuple[str, ...], rows: list[list[Any]]) -> None:
    if rows:
        print()  # noqa: T201 - a blank line between tables
        table(headings, rows, title=title)


def _flow(route: dict[str, Any]) -> str:
    return "paused" if route["paused"] else _connection(route)


def _known(count: int | None) -> str:
    return "?" if count is None else str(count)


def _connection(part: dict[str, Any]) -> str:
    return "connected" if part["connected"] else ": ".join(filter(None, ("NOT CONNECTED", part.get("error"))))
