"""A daemon's status for people."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import ByteSize

from ...core.targets import Partition
from ..text import instant
from .tables import duration, table

_HOURS = 12
_ADDRESSES = 20


class Section(NamedTuple):
    """One table of the status. Without a title and headings: names and values. `more` rows are left out, and `rest` says what else is."""

    title: str
    headings: tuple[str, ...]
    rows: list[list[Any]]
    more: int = 0
    rest: str = ""

    def caption(self) -> str:
        """What stands below it."""
        return "\n".join(filter(None, (f"and {self.more:,} more" if self.more else "", self.rest)))


def print_status(found: dict[str, Any]) -> None:
    """All sections, one after the other."""
    for index, section in enumerate(sections(found)):
        if index:
            print()  # noqa: T201 - a blank line between tables
        table(section.headings, section.rows, title=section.title)
        if caption := section.caption():
            print(caption)  # noqa: T201 - it belongs to the table


def held_at(held: dict[str, Any]) -> str:
    """What takes no messages, in words."""
    number = held.get("partition")
    return str(held["address"] if number is None else Partition(held["address"], number, 0))


def sections(found: dict[str, Any]) -> list[Section]:
    """Summary, routes, lanes, what is held back, and where and when most of the rest goes; only what has anything in it."""
    route_rows = [[each["name"], each["from"], each["to"], _flow(each), each["received"]] for each in found["routes"]]
    lane_rows = [[each["broker"], _connection(each), each["in_flight"], each["published"]] for each in found["lanes"]]
    held = [
        [lane["broker"], held_at(each), each["attempts"], instant(each["retry_at"]), each["error"]]
        for lane in found["lanes"]
        for each in lane["held"]
    ]
    levels = [
        [each["name"], duration(each["wait"]), _connection(each), _known(each["depth"]), instant(each["first_leaves"])]
        for each in found.get("levels", ())
    ]
    busiest = [
        [each["broker"], each["address"], each["pending"]] for each in sorted(found["by_address"], key=lambda each: -each["pending"])
    ]
    soonest = [[instant(each["hour"]), each["pending"]] for each in sorted(found["by_hour"], key=lambda each: each["hour"])]
    every = (
        Section("", (), [[name, value] for name, value in _summary(found).items()]),
        Section("routes", ("ROUTE", "FROM", "TO", "STATE", "RECEIVED"), route_rows),
        Section("destinations", ("BROKER", "STATE", "IN FLIGHT", "PUBLISHED"), lane_rows),
        _first(_ADDRESSES, "held back", ("BROKER", "ADDRESS", "ATTEMPTS", "NEXT TRY", "ERROR"), held),
        Section("levels", ("QUEUE", "WAIT", "STATE", "MESSAGES", "FIRST LEAVES"), levels),
        _first(_ADDRESSES, "pending by address", ("BROKER", "ADDRESS", "PENDING"), busiest)._replace(rest=_beyond(found)),
        _first(_HOURS, "pending by hour", ("HOUR", "PENDING"), soonest),
    )
    return [section for section in every if section.rows]


def _first(count: int, title: str, headings: tuple[str, ...], rows: list[list[Any]]) -> Section:
    """No more than people look at; JSON has them all."""
    return Section(title, headings, rows[:count], max(0, len(rows) - count))


def _beyond(found: dict[str, Any]) -> str:
    """Where there are many, the daemon tells the first addresses by name: the busiest of all may not be among them."""
    told = found["by_address"]
    others = (found["pending"] or 0) - sum(each["pending"] for each in told)
    return f"of the first {len(told):,} addresses by name; {others:,} messages are for others" if told and others > 0 else ""


def _summary(found: dict[str, Any]) -> dict[str, Any]:
    store = found["store"]
    free = f"{ByteSize(store['free_bytes']).human_readable(separator=' ')} free"
    return {
        "bridge": f"{found['bridge']} ({found['version']})",
        "configuration": _configuration(found),
        "ready": "yes" if found["ready"] else "no",
        "running for": duration(found["now"] - found["started"]),
        "pending": "?" if found["pending"] is None else found["pending"],
        "held back": found["held"],
        "dead letters": found["shelved"],
        "oldest overdue": duration(found["oldest_overdue_ms"]),
        "store in": store.get("path", ""),
        "disk": free if store["room"] else f"{free}: below the limit, intake has stopped",
        "ledger": _ledger(found.get("ledger", {})),
        "since the store was made": ", ".join(f"{count} {event}" for event, count in found["events"].items()),
    }


def _configuration(found: dict[str, Any]) -> str:
    file = found.get("config") or "none: the in-process broker, or the environment's variables"
    if not found.get("config_usable", True):
        return f"{file}; changed since, and CANNOT BE USED: `delaybridge check-config` says why"
    keys, restart = not_in_force(found)
    how = "restart" if restart else "reload"
    return f"{file}; changed since, and not in force until a {how}: {', '.join(keys)}" if keys else file


def not_in_force(found: dict[str, Any]) -> tuple[list[str], bool]:
    """By a daemon's status: the keys that its configuration file says otherwise by now, and whether it takes a restart to bring them into force."""
    restart = found.get("needs_restart", ())
    return [*restart, *found.get("needs_reload", ())], bool(restart)


def _ledger(found: dict[str, Any]) -> str:
    count = found.get("backlog", 0)
    rows = f"{count} row{'' if count == 1 else 's'} in no file yet"
    return f"NOT WRITTEN, {rows}: {found['error']}" if found.get("error") else rows


def _flow(route: dict[str, Any]) -> str:
    return "paused" if route["paused"] else _connection(route)


def _known(count: int | None) -> str:
    return "?" if count is None else str(count)


def _connection(part: dict[str, Any]) -> str:
    return ": ".join(filter(None, ("connected" if part["connected"] else "NOT CONNECTED", part.get("error"))))
