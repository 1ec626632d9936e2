"""Asking the running daemon: cancel, replace, reschedule, release, pause; by its API and by message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from integration.daemon import Daemon
from integration.rabbit import Rabbit, config, rabbit

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR = 3_600_000
LEAD = 5_000
"""Milliseconds: so long a test may take to do what must be done before a message is due."""


class Stage(NamedTuple):
    place: Rabbit
    daemon: Daemon

    def schedule(self, id_: str, delay: int, body: bytes = b"", **more: Any) -> None:
        """Send a message with an id, and wait until the daemon has it."""
        self.place.send("in", body or id_.encode(), x_delay=delay, x_delay_id=id_, **more)
        self.daemon.wait_for(lambda: self.known(id_), f"{id_} to be taken in")

    def known(self, id_: str) -> bool:
        return self.daemon.http.get(f"/api/v1/messages/{id_}").status_code == 200

    def events(self, event: str) -> int:
        count: int = self.daemon.get("/status")["events"].get(event, 0)
        return count

    def assert_only(self, *bodies: bytes, lead: int = 600) -> None:
        """These arrive, and nothing that was due before a last message does."""
        self.place.send("in", b"last", x_delay=lead)
        arrivals = self.place.receive("out", len(bodies) + 1)
        assert [arrival.body for arrival in arrivals] == [*bodies, b"last"]


@pytest.fixture(scope="module")
def stage(rabbitmq: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with rabbit(rabbitmq.url) as place:
        place.queue("out")
        route = {
            "name": "jobs",
            "from": {"broker": "rabbit", "queue": place.queue("in")},
            "to": {"broker": "rabbit", "address": place.address("out")},
        }
        with Daemon(tmp_path_factory.mktemp("daemon"), config(rabbitmq.url, "", [route])) as daemon:
            daemon.start()
            yield Stage(place, daemon)


@pytest.fixture(autouse=True)
def _nothing_of_another_test(stage: Stage) -> None:
    stage.place.channel.queue_purge(stage.place.name("out"))


def test_a_cancelled_message_never_comes_and_the_second_answer_says_when_it_was_cancelled(stage: Stage) -> None:
    stage.schedule("cancelled", LEAD)
    before = time.time_ns() // 1_000_000
    assert stage.daemon.ask("cancel", "cancelled") == "done"
    again = stage.daemon.post("/messages/cancelled/cancel")
    assert again.status_code == 409
    error = again.json()["error"]
    assert (error["code"], error["event"]) == ("too_late", "cancelled")
    assert before <= error["at"] <= time.time_ns() // 1_000_000
    stage.assert_only(lead=LEAD)


@pytest.mark.parametrize("verb", ["cancel", "release"])
def test_an_id_that_was_never_heard_of_is_unknown(stage: Stage, verb: str) -> None:
    assert stage.daemon.post(f"/messages/never-heard-of/{verb}").status_code == 404
    assert stage.daemon.ask(verb, "never-heard-of") == "unknown"
    assert stage.daemon.ask("reschedule", "never-heard-of", {"due": "1s"}) == "unknown"


def test_after_the_delivery_every_answer_is_too_late(stage: Stage) -> None:
    stage.place.send("in", b"delivered", x_delay=300, x_delay_id="delivered")
    arrival = stage.place.one("out")
    for verb, body in (("cancel", None), ("release", None), ("reschedule", {"due": "1s"})):
        error = stage.daemon.post(f"/messages/delivered/{verb}", body).json()["error"]
        assert (error["code"], error["event"]) == ("too_late", "delivered")
        assert arrival.due <= error["at"] <= time.time_ns() // 1_000_000


def test_the_same_id_again_replaces_what_was_pending(stage: Stage) -> None:
    replaced = stage.events("replaced")
    stage.schedule("again", LEAD, b"old")
    stage.place.send("in", b"new", x_delay=300, x_delay_id="again")
    stage.assert_only(b"new", lead=LEAD)
    assert stage.events("replaced") == replaced + 1


def test_a_rescheduled_message_comes_at_its_new_time_earlier_or_later(stage: Stage) -> None:
    stage.schedule("sooner", HOUR)
    stage.schedule("later", LEAD)
    due = time.time_ns() // 1_000_000 + LEAD + 200
    assert stage.daemon.ask("reschedule", "later", {"due": due}) == "done"
    assert stage.daemon.ask("reschedule", "sooner", {"due": "200ms"}) == "done"
    first, second = sorted(stage.place.receive("out", 2), key=lambda one: one.body == b"later")
    assert (first.body, second.body, second.due) == (b"sooner", b"later", due)
    assert second.at >= due


def test_a_released_message_comes_now(stage: Stage) -> None:
    stage.schedule("released", HOUR)
    assert stage.daemon.ask("release", "released") == "done"
    assert stage.place.one("out").body == b"released"


def test_a_cancelled_repeat_does_not_come_again(stage: Stage) -> None:
    stage.schedule("repeated", 200, x_delay_period=LEAD, x_delay_repeat=100)
    assert stage.place.one("out").occurrence == 1
    assert stage.daemon.ask("cancel", "repeated") == "done"
    stage.assert_only(lead=LEAD)


def test_a_message_can_cancel_another(stage: Stage) -> None:
    stage.schedule("by message", LEAD)
    stage.place.send("in", b"ignored", x_delay_cancel="by message")
    stage.daemon.wait_for(lambda: not stage.known("by message"), "the cancellation")
    stage.assert_only(lead=LEAD)


def test_a_cancellation_that_overtakes_its_schedule_still_wins(stage: Stage) -> None:
    cancelled = stage.events("cancelled")
    stage.place.send("in", b"", x_delay_cancel="overtaken")
    stage.place.send("in", b"overtaken", x_delay=200, x_delay_id="overtaken")
    stage.daemon.wait_for(lambda: stage.events("cancelled") == cancelled + 1, "the cancellation")
    stage.assert_only()


def test_an_id_may_be_used_again_after_its_delivery(stage: Stage) -> None:
    for round_ in (b"one", b"two"):
        stage.place.send("in", round_, x_delay=100, x_delay_id="reused")
        assert stage.place.one("out").body == round_


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_a_paused_route_stays_paused_over_a_restart_and_what_waited_comes_in_order(stage: Stage, end: str) -> None:
    place, daemon = stage.place, stage.daemon

    def states() -> list[str]:
        return [item["state"] for item in daemon.get("/messages")["items"]]

    assert daemon.post("/routes/jobs/pause").status_code == 200
    place.send("in", b"first", x_delay=100)
    place.send("in", b"second", x_delay=200)
    daemon.wait_for(lambda: states() == ["held", "held"], "both to be held")
    getattr(daemon, end)()
    daemon.start()
    place.send("in", b"third", x_delay=100)
    daemon.wait_for(lambda: states() == ["held"] * 3, "all to be held")
    assert daemon.get("/status")["routes"][0]["paused"]
    assert place.waiting("out") == 0
    assert daemon.post("/routes/jobs/resume").status_code == 200
    assert [arrival.body for arrival in place.receive("out", 3)] == [b"first", b"second", b"third"]
    assert not daemon.get("/status")["routes"][0]["paused"]


def test_the_command_line_asks_the_same(stage: Stage) -> None:
    stage.schedule("by-command", HOUR)
    shown = stage.daemon.run("show", "by-command", "--output", "json")
    assert shown.returncode == 0, shown.stderr
    assert "by-command" in shown.stdout
    assert stage.daemon.run("cancel", "by-command").returncode == 0
    assert stage.daemon.run("cancel", "by-command").returncode == 1
    stage.assert_only()
