"""Cancelling and replacing what waits in level queues on Kafka, through either of two bridges, while they live and while they die."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import wait_until
from brokers.kafka import admin
from crash.ends_kafka import KafkaEnds
from crash.traffic import now_ms, seed

from integration.level_queues import bridges, config
from integration.test_level_queues_kafka import KIND, App, shared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.daemon import Daemon
    from integration.test_level_queues_kafka import Got

SURE = 3_000
"""Milliseconds before a due time in which a cancel is answered `done` at once."""


class House:
    """Two bridges that share level queues, an app that sends through them, and what has become of it."""

    def __init__(self, daemons: list[Daemon], app: App) -> None:
        self.daemons = daemons
        self.one, self.other = daemons
        self.app = app
        self.got: list[Got] = []

    def start(self) -> None:
        for daemon in self.daemons:
            daemon.start(ready=False)
        for daemon in self.daemons:
            daemon.wait_ready()

    def send(self, *bodies: str, **headers: Any) -> None:
        """Each with its body as its id, and as its key: so both bridges get some."""
        for body in bodies:
            self.app.send(body, key=body, **{"x_delay_id": body} | headers)

    def taken_in(self, count: int) -> list[int]:
        """How many messages each has taken in, once it is so many together."""

        def received() -> list[int]:
            return [daemon.get("/status")["routes"][0]["received"] for daemon in self.daemons]

        self.app._producer.flush(10)
        wait_until(lambda: sum(received()) >= count, "the messages to be taken in", 30)
        return received()

    def arrive(self, count: int) -> list[str]:
        self.got += self.app.receive(count)
        return sorted(each.body for each in self.got)

    def events(self) -> Counter[str]:
        """Of both ledgers, so far."""
        return sum((Counter(daemon.get("/status")["events"]) for daemon in self.daemons), Counter())

    def ended(self, **wanted: int) -> None:
        """Wait until the ledgers say so; then they add up, and nothing more arrives."""
        wait_until(lambda: +self.events() == Counter(wanted), f"the ledgers to say {wanted}: {self.events()}", 30)
        assert self.adds_up()
        self.nothing_more()

    def adds_up(self) -> bool:
        events = self.events()
        return events["scheduled"] == events.total() - events["scheduled"]

    def nothing_more(self) -> None:
        """Nothing more arrives."""
        with pytest.raises(AssertionError, match="0 of 1 came"):
            self.app.receive(1, patience=0.5)

    def stop(self) -> list[dict[str, Any]]:
        """The rows of both ledgers."""
        for daemon in self.daemons:
            assert daemon.terminate() == 0, daemon.tail()
        return [row for daemon in self.daemons for row in daemon.ledger()]


@pytest.fixture
def house(kafka: Any, tmp_path: Path) -> Iterator[House]:
    ends = KafkaEnds(kafka)
    settings = config(ends, KIND)
    settings["routes"][0]["allow_to"] = ["nowhere.*"]
    with (
        bridges(tmp_path, shared(settings, tmp_path), 2) as daemons,
        contextlib.closing(App(kafka.url, f"{ends.prefix}.{KIND}.in", f"{ends.prefix}.{KIND}.out")) as app,
    ):
        made = House(daemons, app)
        made.start()
        yield made
    ends.close()


def test_either_bridge_cancels_what_the_other_took_in_and_the_ledgers_add_up(house: House) -> None:
    due, names = now_ms() + 15_000, list[str]()
    while len(names) < 40 or not all(house.taken_in(len(names))):
        assert now_ms() < due - SURE, "both should have taken in some by now"
        more = [f"order-{number}" for number in range(len(names), len(names) + 20)]
        house.send(*more, x_delay_until=due)
        names += more
    assert [house.one.ask("cancel", name) for name in names[:10]] == ["done"] * 10
    assert [house.other.ask("cancel", name) for name in names[10:20]] == ["done"] * 10
    assert house.other.ask("cancel", names[0]) == "too_late"
    assert house.one.ask("cancel", "never-seen") == "unknown"
    assert house.arrive(len(names) - 20) == sorted(names[20:])
    house.ended(scheduled=len(names), delivered=len(names) - 20, cancelled=20)
    assert house.one.ask("cancel", names[20]) == "too_late"
    rows = house.stop()
    ended = Counter((row["id"], row["event"]) for row in rows)
    assert ended == Counter(
        [(name, "scheduled") for name in names]
        + [(name, "cancelled") for name in names[:20]]
        + [(name, "delivered") for name in names[20:]]
    )


def test_a_cancellation_by_message_ends_what_waits_and_what_comes_later_once(house: House) -> None:
    house.send("waits", x_delay=60_000)
    house.taken_in(1)
    house.app.send("", key="other", x_delay_cancel="waits")
    house.app.send("", key="early", x_delay_cancel="comes-later")
    house.taken_in(3)
    house.send("comes-later", x_delay=500)
    house.taken_in(4)
    house.send("comes-later", "waits", x_delay=500)
    assert house.arrive(2) == ["comes-later", "waits"]
    house.ended(scheduled=4, delivered=2, cancelled=2)


def test_an_id_that_is_sent_again_replaces_what_waits_whichever_is_due_first(house: House) -> None:
    for round_, delay in enumerate((9_000, 5_000, 7_000)):
        for number in range(20):
            house.app.send(f"{number} {round_}", key=f"{number * 7 + round_}", x_delay_id=f"order-{number}", x_delay=delay)
        house.taken_in(20 * (round_ + 1))
    assert house.arrive(20) == sorted(f"{number} 2" for number in range(20))
    house.ended(scheduled=60, delivered=20, replaced=40)


def test_a_cancel_stops_a_series_also_by_the_id_that_the_bridge_gave_it(house: House) -> None:
    house.app.send("tick", x_delay_period=400, x_delay_repeat=100)
    house.app.send("tock", x_delay_period=60_000, x_delay_repeat=100, x_delay=10, x_delay_id="clock")
    ticks = [each for each in house.app.receive(4) if each.body == "tick"]
    assert house.other.ask("cancel", ticks[0].headers["x-delay-id"]) == "done"
    assert house.one.ask("cancel", "clock") == "done"
    with contextlib.suppress(AssertionError):
        while True:
            ticks += [each for each in house.app.receive(1, patience=1.5) if each.body == "tick"]
    events = house.events()
    assert events["delivered"] == len(ticks) + 1
    wait_until(lambda: house.events()["cancelled"] >= 1, "the series to end")


def test_what_was_cancelled_and_replaced_stays_so_when_all_bridges_are_killed(house: House) -> None:
    """At once, too: then their source may not know yet what they had stored, and gives it again."""
    due, names = now_ms() + 15_000, [f"cancelled-{number}" for number in range(10)]
    house.send("kept", "replaced", x_delay_until=due)
    house.taken_in(2)
    house.app.send("replacing", key="x", x_delay_id="replaced", x_delay_until=due)
    house.send(*names, x_delay_until=due)
    house.taken_in(13)
    with ThreadPoolExecutor(len(names)) as pool:
        assert set(pool.map(lambda name: house.one.ask("cancel", name), names)) == {"done"}
    for daemon in house.daemons:
        daemon.kill()
    house.start()
    assert house.arrive(2) == ["kept", "replacing"]
    assert min(each.at - each.due for each in house.got) >= 0
    wait_until(lambda: house.events()["delivered"] == 2 and house.adds_up(), "the ledgers to add up", 30)
    house.nothing_more()
    events = house.events()
    print(f"{events['scheduled'] - 13} were taken in twice: {events}")
    assert events["cancelled"] == 10
    assert events["replaced"] == 1 + events["scheduled"] - 13, "of what was taken in twice the first copies are replaced"


def sent(house: House, rng: random.Random, count: int) -> dict[str, int]:
    """So many messages, all taken in: when each is due, in three to eight seconds."""
    start = now_ms() + 3_000
    dues = {f"order-{number}": start + rng.randrange(5_000) for number in range(count)}
    for name, due in dues.items():
        house.send(name, x_delay_until=due)
    house.taken_in(count)
    return dues


def test_whatever_a_cancel_around_the_due_time_is_answered_is_true(house: House) -> None:
    """Cancels come from a little before the due times on; each answer is held against what arrives."""
    rng = random.Random(seed())
    dues = sent(house, rng, 200)
    names = list(dues)

    def cancel(name: str) -> str:
        time.sleep(max(0.0, dues[name] + rng.randrange(-3_000, 100) - now_ms()) / 1000)
        return rng.choice(house.daemons).ask("cancel", name)

    with ThreadPoolExecutor(len(names)) as pool:
        answers = dict(zip(names, pool.map(cancel, names), strict=True))
    told = Counter(answers.values())
    print(f"answers: {told}")
    assert set(told) <= {"done", "too_late", "in_flight"}
    wait_until(lambda: house.events()["delivered"] + house.events()["cancelled"] == len(names), "all to end", 60)
    delivered = house.arrive(house.events()["delivered"])
    undecided = {name for name in names if answers[name] == "in_flight"}  # a stalled machine kept a delivery here for seconds
    assert set(delivered) - undecided == {name for name in names if answers[name] == "too_late"}
    house.ended(scheduled=200, delivered=len(delivered), cancelled=len(names) - len(delivered))


def test_of_two_cancels_at_once_around_the_due_time_one_is_done_and_both_say_what_happened(house: House) -> None:
    rng = random.Random(seed())
    dues = sent(house, rng, 100)
    names = list(dues)

    def cancel(name: str) -> list[str]:
        time.sleep(max(0.0, dues[name] + rng.randrange(-2_500, 50) - now_ms()) / 1000)
        with ThreadPoolExecutor(2) as both:
            told = list(both.map(lambda daemon: daemon.post(f"/messages/{name}/cancel").json(), house.daemons))
        return sorted(each["error"].get("event") or each["error"]["code"] if "error" in each else "done" for each in told)

    with ThreadPoolExecutor(len(names)) as pool:
        answers = dict(zip(names, pool.map(cancel, names), strict=True))
    wait_until(lambda: house.events()["delivered"] + house.events()["cancelled"] == len(names), "all to end", 60)
    delivered = set(house.arrive(house.events()["delivered"]))
    known = {name: told for name, told in answers.items() if "in_flight" not in told}  # a stalled machine kept a delivery here for seconds
    assert known
    assert known == {name: ["delivered"] * 2 if name in delivered else ["cancelled", "done"] for name in known}
    house.ended(scheduled=100, delivered=len(delivered), cancelled=len(names) - len(delivered))


def test_a_cancel_takes_away_what_a_destination_refuses(house: House) -> None:
    house.send("held", x_delay=100, x_delay_to="nowhere.at.all")
    wait_until(lambda: any(daemon.get("/status")["lanes"][0]["held"] for daemon in house.daemons), "it to be held back", 30)
    assert house.one.ask("cancel", "held") == "done"
    house.ended(scheduled=1, cancelled=1)


def test_what_needs_an_index_is_still_refused(house: House) -> None:
    house.send("waits", x_delay=60_000)
    house.taken_in(1)
    for verb, body in (("reschedule", {"due": "1h"}), ("release", None)):
        assert house.one.ask(verb, "waits", body) == "unsupported_in_level_queues"
    assert house.one.http.get("/api/v1/messages").status_code == 501
    assert house.one.http.get("/api/v1/messages/waits").status_code == 501


def test_a_log_of_ids_that_somebody_deletes_is_made_again_and_what_comes_then_can_be_cancelled(house: House, kafka: Any) -> None:
    house.send("before", x_delay=100)
    house.arrive(1)
    with contextlib.closing(admin(kafka.url)) as client:
        client.delete_topics([f"{house.one.config['store']['prefix']}.ids"])
    wait_until(lambda: all(daemon.log("log_of_ids_is_another") for daemon in house.daemons), "the loss to be told", 60)
    house.send("arrives", x_delay=100)
    assert house.arrive(1) == ["arrives", "before"]
    house.send("never", x_delay=60_000)
    house.taken_in(3)
    assert [daemon.ask("cancel", "never") for daemon in house.daemons] == ["done", "too_late"]
    house.ended(scheduled=3, delivered=2, cancelled=1)
