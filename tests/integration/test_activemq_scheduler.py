"""A broker whose own scheduler is off, plus the bridge, against clients of ActiveMQ's scheduler that were not changed: they send and receive as before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from brokers.activemq import Native, libraries
from brokers.common import Unavailable, wait_until
from brokers.private import running
from conftest import unavailable

from integration.active import INGRESS, App, Stage, intercepted, manage, stage
from integration.stores import in_time_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.active import Arrival
    from integration.stores import Waiting


@pytest.fixture(scope="module")
def broker() -> Iterator[Native]:
    try:
        with intercepted() as made:
            yield made
    except Unavailable as reason:
        unavailable("activemq", reason)


@pytest.fixture(scope="module")
def place(broker: Native, waiting: Waiting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(broker, tmp_path_factory.mktemp("daemon"), waiting) as made:
        yield made


def assert_in_time(arrival: Arrival, due: float) -> None:
    """Not before `due`, which the header tells; the broker's clock is ours."""
    assert arrival.due >= int(due)
    assert arrival.at >= arrival.due
    assert "AMQ_SCHEDULED_DELAY" not in arrival.headers
    assert arrival.headers["x-delay-id"]


def test_doctor_finds_all_well_and_proves_every_way_in(place: Stage) -> None:
    done = place.daemon.run("doctor", "--broker", "amq")
    assert done.returncode == 0, done.stdout + done.stderr
    for way in (f"/queue/{INGRESS}", "/queue/orders.>", "/queue/bills", "/topic/events.*"):
        assert f"a probe through `{way}`, delayed by 300 ms, came back" in done.stdout
    assert place.daemon.run("apply", "--broker", "amq").returncode == 0
    assert place.daemon.log("refused") == [], "a probe is nobody's dead letter"


@pytest.mark.parametrize("destination", ["/queue/orders", "/queue/orders.a.b", "/queue/bills", "/topic/events.a"])
def test_a_delayed_message_arrives_at_its_own_destination_when_it_is_due_and_others_at_once(place: Stage, destination: str) -> None:
    with place.app() as app:
        app.subscribe(destination)
        sent = app.send(destination, "later", AMQ_SCHEDULED_DELAY=600, shop="north")
        app.send(destination, "now", shop="south")
        first, second = sorted(app.receive(2), key=lambda one: one.body != "now")
    assert (first.body, first.headers["shop"]) == ("now", "south")
    assert not [name for name in first.headers if name.startswith("x-delay")]
    assert (second.body, second.headers["shop"], second.headers["destination"]) == ("later", "north", destination)
    assert second.headers["x-delay-occurrence"] == "1"
    assert_in_time(second, sent + 600)


@in_time_index("it is about the way in")
@pytest.mark.parametrize("header", ["AMQ_SCHEDULED_DELAY", "x-delay", "x_delay"])
def test_what_the_command_line_sends_is_delayed_as_a_producers(place: Stage, header: str) -> None:
    with place.app() as app:
        app.subscribe("/queue/orders.sent")
        sent = time.time() * 1000
        done = place.daemon.run("send", "later", "-H", f"{header}=600", "--address", "/queue/orders.sent")
        assert (done.returncode, done.stdout) == (0, "sent\n"), done.stderr
        arrival = app.one()
    assert arrival.body == "later"
    assert_in_time(arrival, sent + 600)


@in_time_index("the bridge never sees it")
def test_what_is_not_intercepted_keeps_its_headers_and_comes_at_once(place: Stage) -> None:
    with place.app() as app:
        app.subscribe("/queue/elsewhere")
        app.send("/queue/elsewhere", "now", AMQ_SCHEDULED_DELAY=600)
        assert app.one().headers["AMQ_SCHEDULED_DELAY"] == "600"


def test_a_repeat_of_n_gives_n_and_one_deliveries_a_period_apart(place: Stage) -> None:
    with place.app() as app:
        app.subscribe("/queue/orders.repeat")
        sent = app.send("/queue/orders.repeat", "again", AMQ_SCHEDULED_DELAY=300, AMQ_SCHEDULED_PERIOD=400, AMQ_SCHEDULED_REPEAT=3)
        arrivals = app.receive(4)
        app.send("/queue/orders.repeat", "later than a fifth", AMQ_SCHEDULED_DELAY=800)
        assert app.one().body == "later than a fifth"
    assert [arrival.headers["x-delay-occurrence"] for arrival in arrivals] == ["1", "2", "3", "4"]
    assert len({arrival.headers["x-delay-id"] for arrival in arrivals}) == 1
    dues = [arrival.due for arrival in arrivals]
    assert [due - dues[0] for due in dues] == [0, 400, 800, 1200]
    for number, arrival in enumerate(arrivals):
        assert_in_time(arrival, sent + 300 + 400 * number)


def test_a_period_without_a_delay_begins_after_one_period(place: Stage) -> None:
    with place.app() as app:
        app.subscribe("/topic/events.period")
        sent = app.send("/topic/events.period", "tick", AMQ_SCHEDULED_PERIOD=500, AMQ_SCHEDULED_REPEAT=1)
        for number, arrival in enumerate(app.receive(2), 1):
            assert_in_time(arrival, sent + 500 * number)


@in_time_index("it releases what waits, by its id")
def test_a_cron_waits_for_its_next_match_and_goes_on(place: Stage) -> None:
    with place.app() as app:
        due = (time.time_ns() // 60_000_000_000 + 10) * 60_000  # not so soon that it is due before all this is done
        app.send("/queue/orders.cron", "hourly", AMQ_SCHEDULED_CRON=f"{due // 60_000 % 60} * * * *")
        place.wait_pending(1)
        (waiting,) = place.daemon.get("/messages")["items"]
        assert waiting["due"] == due
        app.subscribe("/queue/orders.cron")
        assert place.daemon.ask("release", waiting["id"]) == "done"
        arrival = app.one()
        assert (arrival.body, arrival.headers["x-delay-occurrence"]) == ("hourly", "1")
        place.wait_pending(1)
        assert place.daemon.ask("cancel", waiting["id"]) == "done"


@in_time_index("it waits for up to a minute, and goes on as repeats do", "activemq")
def test_a_cron_with_delay_period_and_repeat_starts_a_series_at_each_match(place: Stage, waiting: Waiting) -> None:
    with place.app() as app:
        app.subscribe("/queue/orders.series")
        headers = {"AMQ_SCHEDULED_DELAY": 500, "AMQ_SCHEDULED_PERIOD": 300, "AMQ_SCHEDULED_REPEAT": 1}
        app.send("/queue/orders.series", "series", AMQ_SCHEDULED_CRON="* * * * *", **headers)
        arrivals = app.receive(2, timeout=75)
    for number, arrival in enumerate(arrivals):
        assert arrival.due % 60_000 == 500 + 300 * number
        assert arrival.at >= arrival.due
    answer = place.daemon.ask("cancel", arrivals[0].headers["x-delay-id"])
    assert answer == "done" or waiting.kind != "time_index"


@in_time_index("it asks for the shelf, and level queues have none")
def test_a_delay_that_cannot_be_honoured_is_dead_lettered_not_delivered(place: Stage) -> None:
    with place.app() as app:
        app.subscribe("/queue/bills")
        app.send("/queue/bills", "never", x_delay="soon")
        place.daemon.wait_for(lambda: len(place.daemon.get("/dead-letters")["items"]) == 1, "a dead letter")
        app.send("/queue/bills", "behind it")
        assert app.one().body == "behind it"
    (letter,) = place.daemon.get("/dead-letters")["items"]
    assert letter["reason"] == "bad_duration"
    assert place.daemon.http.delete(f"/api/v1/dead-letters/{letter['number']}").is_success


def test_what_was_sent_while_the_bridge_was_down_waits_in_the_broker(place: Stage) -> None:
    place.daemon.kill()
    with place.app() as app:
        app.subscribe("/queue/orders.down")
        sent = app.send("/queue/orders.down", "kept", AMQ_SCHEDULED_DELAY=200, persistent="true")
        app.send("/queue/orders.down", "now")
        assert app.one().body == "now"
        place.daemon.start()
        arrival = app.one()
    assert arrival.body == "kept"
    assert_in_time(arrival, sent + 200)
    assert arrival.due <= time.time() * 1000


# --- management messages: a JMS client (Scheduler.java), which is how ActiveMQ's documentation has it ---


@in_time_index("level queues have nothing to browse or remove from")
def test_the_same_client_sees_the_same_of_activemqs_own_scheduler_and_of_the_bridge(place: Stage) -> None:
    """Order, bodies, types and properties; beyond ActiveMQ the bridge adds when each message is due."""
    original = Native(libraries(), scheduler=True)
    with running(original):
        expected = [_comparable(shown) for shown in _browsed(original, _schedule(original.url))]
    place.wait_pending(0)
    ours = _browsed(place.broker, _schedule(place.broker.url))
    assert [_comparable(shown) for shown in ours] == expected
    assert [int(shown["x-delay-due"]) for shown in ours] == sorted(int(shown["x-delay-due"]) for shown in ours)
    manage(place.broker, "REMOVEALL")
    place.wait_pending(0)


def _schedule(url: str) -> int:
    """Three messages; how many."""
    with App(url) as app:
        app.send("/queue/orders.m", "third", AMQ_SCHEDULED_CRON="0 0 1 1 *", foo="bar", type="T")
        app.send("/queue/orders.m", "second", AMQ_SCHEDULED_DELAY=120_000, priority=7)
        app.send("/topic/events.m", "first", AMQ_SCHEDULED_DELAY=60_000, AMQ_SCHEDULED_PERIOD=1000, AMQ_SCHEDULED_REPEAT=3)
    return 3


def _browsed(broker: Native, count: int) -> list[dict[str, str]]:
    """Once all are scheduled: they are on their way into the bridge."""
    found: list[dict[str, str]] = []

    def complete() -> bool:
        found[:] = [dict(part.partition("=")[::2] for part in (f"class={line[0]}", f"body={line[1]}", *line[2:])) for line in answers()]
        return len(found) == count

    def answers() -> list[list[str]]:
        return [line for line in manage(broker, "BROWSE", str(count)) if line != ["nothing"]]

    wait_until(complete, f"{count} answers", 60)
    return found


def _comparable(shown: dict[str, str]) -> dict[str, str]:
    """Less what only one says, and what differs from run to run."""
    assert shown["scheduledJobId"]
    return {name: value for name, value in shown.items() if name not in _ONLY_OURS | {"scheduledJobId"}}


_ONLY_OURS = {"x-delay-due", "x-delay-message-id", "x-delay-timestamp", "original-destination"}


@in_time_index("level queues have nothing to browse or remove from")
def test_browse_shows_a_window_and_remove_withdraws_one_job(place: Stage) -> None:
    with place.app() as app:
        app.subscribe("/queue/orders.window")
        sent = int(app.send("/queue/orders.window", "removed", AMQ_SCHEDULED_DELAY=600_000))
        app.send("/queue/orders.window", "kept", AMQ_SCHEDULED_DELAY=700_000)
        app.send("/queue/orders.window", "far", AMQ_SCHEDULED_DELAY=900_000)
        place.wait_pending(3)
        (line,) = manage(place.broker, "BROWSE", "1", str(sent + 800_000), str(sent + 1_000_000))
        assert line[1] == "far"
        removed, kept, _ = (each["id"] for each in place.daemon.get("/messages")["items"])
        manage(place.broker, "REMOVE", removed)
        place.wait_pending(2)
        assert [place.daemon.ask("release", each) for each in (removed, kept)] == ["too_late", "done"]
        assert app.one().body == "kept"
        manage(place.broker, "REMOVEALL", str(sent + 800_000), str(sent + 1_000_000))
        place.wait_pending(0)


@in_time_index("level queues have nothing to browse or remove from")
def test_a_large_backlog_is_shown_whole_and_withdrawn_whole(place: Stage) -> None:
    count = 1_000
    with place.app() as app:
        for number in range(count):
            app.post("/queue/orders.many", str(number), AMQ_SCHEDULED_DELAY=3_600_000)
        place.wait_pending(count)
    assert [line[1] for line in manage(place.broker, "BROWSE", str(count))] == [str(number) for number in range(count)]
    manage(place.broker, "REMOVEALL")
    place.wait_pending(0)


@in_time_index("level queues have nothing to browse or remove from")
def test_a_removal_that_was_sent_while_the_bridge_was_down_takes_effect_when_it_is_back(place: Stage) -> None:
    with place.app() as app:
        app.send("/queue/orders.off", "withdrawn", AMQ_SCHEDULED_DELAY=3_600_000)
        place.wait_pending(1)
        place.daemon.kill()
        manage(place.broker, "REMOVEALL")
        place.daemon.start()
        place.wait_pending(0)


@in_time_index("level queues have nothing to browse or remove from")
def test_answers_for_a_queue_that_is_gone_disturb_nobody(place: Stage) -> None:
    with place.app() as app:
        app.subscribe("/queue/bills")
        app.send("/queue/bills", "next", AMQ_SCHEDULED_DELAY=1_000)
        app.manage("BROWSE", **{"reply-to": "/remote-temp-queue/ID:gone-1:1"})
        place.daemon.wait_for(lambda: bool(place.daemon.log("management_answer_refused")), "the refusal to be told")
        assert app.one().body == "next"
