"""What `delaybridge top` counts between two looks, and what it draws."""

from __future__ import annotations

from typing import Any

import pytest
from fake_daemon import STATUS, Daemon, call
from rich.console import Console

from delaybridge.bridge.cli.top import page, per_second

pytestmark = pytest.mark.usefixtures("alone")

BEFORE: dict[str, Any] = STATUS


def later(seconds: float, received: int, **events: int) -> dict[str, Any]:
    (route,) = BEFORE["routes"]
    return BEFORE | {"now": BEFORE["now"] + seconds * 1000, "routes": [route | {"received": received}], "events": events}


def test_rates_are_per_second_of_the_daemons_clock() -> None:
    assert per_second(BEFORE, later(2, 10, scheduled=5, delivered=1, cancelled=1)) == {
        "received": 3.0,
        "scheduled": 0.5,
        "delivered": 0.0,
        "cancelled": 0.5,
        "published": 0.0,
    }


def test_a_daemon_that_was_started_anew_has_no_rates_yet() -> None:
    assert per_second(BEFORE, later(2, 0) | {"started": BEFORE["started"] + 1}) is None


def test_a_route_that_is_gone_since_takes_nothing_from_the_rates() -> None:
    rates = per_second(BEFORE, later(2, 0, scheduled=4, delivered=1) | {"routes": []})

    assert rates == {"received": 0.0, "scheduled": 0.0, "delivered": 0.0, "published": 0.0}


def test_no_time_between_two_looks_has_no_rate() -> None:
    assert per_second(BEFORE, BEFORE) is None


def drawn(rates: dict[str, float] | None) -> str:
    console = Console(width=120)
    with console.capture() as found:
        console.print(page(BEFORE, rates))
    return found.get()


def test_the_page_is_the_status_with_what_happens_in_a_second_in_its_summary() -> None:
    told = drawn({"received": 0.0, "scheduled": 1234.5, "delivered": 0.5})

    assert "1,234.5 scheduled, 0.5 delivered" in told
    assert told.index("b1 (0.1.0)") < told.index("in a second") < told.index("routes") < told.index("pending by hour")


def test_a_page_on_which_nothing_happens_says_so_and_the_first_one_does_not_know() -> None:
    assert "in a second               nothing" in drawn({"received": 0.0})
    assert "in a second" not in drawn(None)


def test_top_in_a_pipe_names_what_is_for_programs(daemon: Daemon) -> None:
    told = call("top")

    assert (told.exit_code, daemon.asked) == (2, [])
    assert "delaybridge status --output json" in told.stderr


def test_an_interval_for_which_nobody_can_sleep_is_wrong_usage() -> None:
    assert "--interval" in call("top", "--interval", "1e12").stderr


def test_status_says_for_how_many_messages_it_was_told_no_address(daemon: Daemon) -> None:
    waiting = [{"broker": "rabbit", "address": f"there-{number}", "pending": 1} for number in range(1_000)]
    daemon.on("GET /api/v1/status", STATUS | {"pending": 51_000, "by_address": waiting}, STATUS | {"pending": 1_000, "by_address": waiting})

    assert "\nof the first 1,000 addresses by name; 50,000 messages are for others\n" in call("status").stdout
    assert "are for others" not in call("status").stdout
