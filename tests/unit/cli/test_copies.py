"""`observe`: what it prints, the files that it writes, and what it says of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import typer
from fake_daemon import Daemon, call

from delaybridge.adapters.base import Batch, NotConnected, Received
from delaybridge.bridge import observing
from delaybridge.bridge.cli import observe
from delaybridge.bridge.ledger.observed import Look, ObservedFiles, Reach
from delaybridge.core.message import message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from delaybridge.core import fields

T0 = 1_795_507_200_000


pytestmark = pytest.mark.usefixtures("alone")


def deliveries() -> bytes:
    arrived: list[dict[str, Any]] = [
        {
            "at": 1_795_507_200_002,
            "address": "out",
            "id": "a",
            "occurrence": 1,
            "due": 1_795_507_200_000,
            "lateness_ms": 2,
            "body": "hé",
            "headers": {},
        },
        {"at": 1_795_510_800_000, "address": "out", "body_base64": "/wA=", "headers": {}},
    ]
    return b"".join(json.dumps(each).encode() + b"\n" for each in arrived)


def test_observe_tells_what_arrives_and_how_late(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/observe", deliveries())

    first, second = call("observe", "out").stdout.splitlines()

    assert first == "2026-11-24T08:00:00.002Z  2 ms late  a #1  hé"
    assert second == "2026-11-24T09:00:00.000Z  not by a bridge    base64 /wA="
    assert daemon.asked[0][1] == {"broker": "memory", "address": "out"}


def test_text_that_holds_what_unicode_takes_for_the_end_of_a_line_is_told_whole(daemon: Daemon) -> None:
    line = json.dumps({"at": T0, "address": "out", "body": "a\u2028b\x85c", "headers": {}}, ensure_ascii=False).encode()
    daemon.on("GET /api/v1/observe", (piece for piece in (line[:50], line[50:] + b"\n" + line, b"\n")))

    told = call("observe", "out", "-o", "ndjson").stdout.splitlines()

    assert [json.loads(each)["body"] for each in told] == ["a\u2028b\x85c"] * 2


QUEUES = """
brokers:
  rabbit: {type: rabbitmq, url: "amqp://127.0.0.1:1"}
  amq: {type: activemq, url: "stomp://127.0.0.1:1"}
  kafka: {type: kafka, bootstrap_servers: "127.0.0.1:1"}
routes:
  - {name: r, from: {broker: rabbit, queue: in}, to: {broker: rabbit}}
"""


class Quiet:
    """Observes nothing, for there is no broker here."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, _: object, broker: str, *__: object) -> list[Look]:
        self.asked.append(broker)
        return []


@pytest.fixture
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Quiet:
    (tmp_path / "delaybridge.yaml").write_text(QUEUES)
    made = Quiet()
    monkeypatch.setattr(observe, "_directly", made)
    return made


@pytest.mark.parametrize(
    ("broker", "address"), [("rabbit", "orders"), ("rabbit", "/queues/orders"), ("amq", "orders"), ("amq", "/queue/orders")]
)
def test_a_queue_loses_its_messages_only_to_somebody_who_said_so(quiet: Quiet, broker: str, address: str) -> None:
    refused = call("observe", address, "--broker", broker)

    assert (refused.exit_code, quiet.asked) == (2, [])
    assert "--take" in refused.stderr
    assert call("observe", address, "--broker", broker, "--take").exit_code == 0
    assert quiet.asked == [broker]


@pytest.mark.parametrize(("broker", "address"), [("rabbit", ""), ("rabbit", "/foo/bar"), ("amq", "/foo/bar"), ("kafka", "a/b")])
def test_what_is_no_address_is_called_that_and_not_a_queue(quiet: Quiet, broker: str, address: str) -> None:
    refused = call("observe", address, "--broker", broker)

    assert (refused.exit_code, quiet.asked) == (2, [])
    assert "a queue: its messages" not in refused.stderr


@pytest.mark.parametrize(("answer", "code", "asked"), [(False, 1, []), (True, 0, ["rabbit"])])
def test_somebody_at_a_terminal_is_asked(quiet: Quiet, monkeypatch: pytest.MonkeyPatch, answer: bool, code: int, asked: list[str]) -> None:
    def confirm(question: str, **_: object) -> None:
        assert "taken away for good" in question
        if not answer:
            raise typer.Abort

    monkeypatch.setattr(typer, "confirm", confirm)
    monkeypatch.setattr(observe, "_at_terminal", lambda: True)

    assert (call("observe", "orders", "--broker", "rabbit").exit_code, quiet.asked) == (code, asked)


@pytest.mark.parametrize(("broker", "address"), [("rabbit", "/exchanges/orders/eu"), ("amq", "/topic/orders"), ("kafka", "orders")])
def test_where_copies_are_heard_nobody_is_asked(quiet: Quiet, broker: str, address: str) -> None:
    assert (call("observe", address, "--broker", broker).exit_code, quiet.asked) == (0, [broker])


def test_observe_stops_after_the_count(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/observe", deliveries())

    assert len(call("observe", "out", "--count", "1", "-o", "ndjson").stdout.splitlines()) == 1


def test_observe_writes_what_arrived_in_the_ledgers_shape(daemon: Daemon, tmp_path: Path) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import, needed here only

    daemon.on("GET /api/v1/observe", deliveries())

    told = call("observe", "out", "--to", "observed")

    assert "2 messages written" in told.stderr
    files = sorted(path.relative_to(tmp_path) for path in (tmp_path / "observed").rglob("*") if path.is_file())
    assert [str(file.parent) for file in files] == ["observed/date=2026-11-24/hour=08", "observed/date=2026-11-24/hour=09"]
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    assert [
        (row["event"], row["id"], row["occurrence"], row["destination_broker"], row["destination"], row["size_bytes"]) for row in rows
    ] == [
        ("observed", "a", 1, "memory", "out", 3),
        ("observed", None, None, "memory", "out", 2),
    ]


@pytest.mark.parametrize("due", [-1, 0, 253_402_300_800_000, 10**16, 10**18, 2**63, 10**20, str(10**19), "1" * 5_000])
@pytest.mark.parametrize("occurrence", [0, -1, 2**63, str(10**19)])
def test_a_number_that_no_bridge_writes_is_none_and_the_rows_beside_it_are_kept(
    tmp_path: Path, due: int | str, occurrence: int | str
) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    def seen(**told: int | str) -> dict[str, Any]:
        text: dict[str, fields.Value] = {f"x-delay-{name}": str(value) for name, value in told.items()}
        return observing.told(Batch([Received(message(b"", text), "", b"")], lambda: None), "out", T0)[0]

    files = ObservedFiles(tmp_path, "rabbit", "out", "a1")
    files.add(seen(id="mine", due=T0, occurrence=2**63 - 1))
    files.add(seen(id="odd", due=due, occurrence=occurrence))
    files.flush()
    [file] = tmp_path.rglob("*.parquet")
    rows = pq.ParquetFile(file).read().to_pylist()

    assert [(row["id"], row["occurrence"], row["due_time"] and row["due_time"].timestamp() * 1000) for row in rows] == [
        ("mine", 2**63 - 1, T0),
        ("odd", None, None),
    ]


@dataclass
class Tap:
    """A broker with a window of 100, as RabbitMQ has one: what waits there comes when there is room, `late` seconds after an acknowledgement.

    `gives` bounds what one `receive` finds. `arrive` says what arrives in how many milliseconds. Clocks advance where it waits, and by a bit with each call.
    """

    waiting: int = 0
    late: float = 0.005
    gives: int = 7
    body: bytes = b""
    every: float | None = None
    now: float = 1_795_507_200.0
    held: int = 0
    inbox: int = 0
    room_from: float = 0.0
    arrived_until: float = 0.0
    overdue: float = 0.0

    def __post_init__(self) -> None:
        self.arrived_until = self.now

    def clock(self) -> int:
        return int(self.now * 1000)

    def elapsed(self) -> float:
        return self.now

    def connect(self) -> None: ...

    def close(self) -> None: ...

    def receive(self, limit: int, timeout: float) -> Batch | None:
        end = self.now + timeout
        self.now += 0.0001
        self._move()
        while not self.inbox and self.now < end:
            self.now = min(end, self.now + 0.001)
            self._move()
        count = min(self.inbox, self.gives, limit)
        self.inbox -= count
        due = self.clock() - round(self.overdue * 1000)
        told: dict[str, fields.Value] = {"x-delay-id": "m", "x-delay-occurrence": 1, "x-delay-due": due}
        return Batch([Received(message(self.body, told), "", b"")] * count, partial(self._ack, count)) if count else None

    def _move(self) -> None:
        if self.every is not None:
            fresh = int((self.now - self.arrived_until) / self.every)
            self.waiting += fresh
            self.arrived_until += fresh * self.every
        if self.now >= self.room_from:
            fits = min(self.waiting, 100 - self.held)
            self.waiting, self.inbox, self.held = self.waiting - fits, self.inbox + fits, self.held + fits

    def _ack(self, count: int) -> None:
        self.held -= count
        self.room_from = self.now + self.late


def _reach_of(tap: Tap, seconds: float) -> Reach:
    reach, end = Reach(copies=False), tap.now + seconds
    looks = observing.looks(tap, "out", 50, tap.clock, tap.elapsed)
    while tap.now < end:
        reach.looked(next(looks))
    return reach


def test_an_observer_to_which_nothing_came_for_a_second_has_seen_what_came_before() -> None:
    tap = Tap()
    begun = tap.clock()

    reach = _reach_of(tap, 5)

    assert (reach.since, reach.until) == (begun, begun + 4_000)


@pytest.mark.parametrize(("late", "gives"), [(0.005, 500), (0.005, 1), (0.05, 7), (0.5, 7)])
def test_an_observer_for_which_more_waits_does_not_think_that_it_has_seen_all_however_little_it_is_given(late: float, gives: int) -> None:
    tap = Tap(waiting=10**9, late=late, gives=gives)

    assert _reach_of(tap, 2.5).until == 0


def test_an_observer_of_large_messages_for_which_more_waits_does_not_think_that_it_has_seen_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observing, "_BYTES", 100)
    tap = Tap(waiting=10**9, gives=1, body=b"x" * 101)

    assert _reach_of(tap, 1.5).until == 0


@pytest.mark.parametrize("every", [0.001, 0.02, 0.9])
def test_an_observer_goes_on_saying_what_it_has_seen_under_traffic_that_never_stops(every: float) -> None:
    tap = Tap(every=every)
    first, second = _reach_of(tap, 2).until, _reach_of(tap, 2).until

    assert first > 0
    assert second - first >= 1_000
    assert tap.clock() - second <= 2_000


def test_an_observer_that_is_behind_under_traffic_that_it_takes_slowly_has_seen_no_more_than_was_due() -> None:
    tap = Tap(every=0.002, overdue=3_600)

    assert _reach_of(tap, 2).until == pytest.approx(tap.clock() - 3_600_000, abs=1_000)


def test_what_comes_before_its_time_says_nothing_of_what_was_seen() -> None:
    tap = Tap(every=0.002, overdue=-1)

    assert _reach_of(tap, 2).until == 0


def _look(deliveries: list[dict[str, Any]], *, full: bool = False) -> Look:
    return Look(T0, T0 + 20, deliveries, full)


def _deliveries(count: int) -> list[dict[str, Any]]:
    return [{"at": T0, "address": "out", "id": f"m-{n}", "occurrence": 1, "due": T0, "body": ""} for n in range(count)]


def _mark(tmp_path: Path, looks: list[Look], *, copies: bool = True, told: bool = True) -> dict[str, Any] | None:
    """What the observer of these looks says of itself."""
    observe._write(looks, ObservedFiles(tmp_path, "rabbit", "out", "a1", copies=copies), Reach(copies=copies) if told else None)
    file = tmp_path / "_reach" / "observed-a1.json"
    return json.loads(file.read_text()) if file.exists() else None


def test_an_observer_marks_from_when_to_when_it_has_seen_what_arrived(tmp_path: Path) -> None:
    place = {"observer": "a1", "broker": "rabbit", "address": "out"}
    behind = [_look(_deliveries(2), full=True), Look(T0 + 20, T0 + 40, _deliveries(2), full=True)]
    later = Look(T0 + 5_000, T0 + 6_000, [], full=False)
    caught_up = {**place, "since_ms": T0, "at_ms": T0 + 5_000, "latest_ms": T0, "copies": True}

    assert _mark(tmp_path / "idle", [_look([])]) == {**place, "since_ms": T0, "at_ms": T0, "latest_ms": None, "copies": True}
    assert _mark(tmp_path / "behind", behind) == {**caught_up, "at_ms": T0}
    assert _mark(tmp_path / "behind at a queue", behind, copies=False) == {**caught_up, "at_ms": 0, "copies": False}
    assert _mark(tmp_path / "nobody can say", behind, told=False) is None
    assert _mark(tmp_path / "caught up", [*behind, later]) == caught_up
    assert _mark(tmp_path / "at a queue", [*behind, later], copies=False) == {**caught_up, "copies": False}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("address", "copies"), [("/queues/out", False), ("/exchanges/out", True)])
def test_an_observer_that_takes_messages_away_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str, copies: bool) -> None:
    monkeypatch.setattr(observe, "_directly", lambda *_: [_look([])])

    call("observe", address, "--broker", "rabbit", "--take", "--to", "observed")
    [mark] = (tmp_path / "observed" / "_reach").iterdir()

    assert json.loads(mark.read_text())["copies"] is copies


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("where", [[], ["--to", "observed"]])
@pytest.mark.parametrize(("count", "left"), [(5, 7), (12, 0), (1, 11)])
def test_an_observer_that_stops_after_a_count_takes_as_many_away_as_it_tells(
    monkeypatch: pytest.MonkeyPatch, where: list[str], count: int, left: int
) -> None:
    tap = Tap(waiting=12)
    monkeypatch.setattr(observe, "_directly", lambda *asked: observing.looks(tap, asked[2], 50, tap.clock, tap.elapsed, asked[3]))

    told = call("observe", "orders", "--broker", "rabbit", "--take", "--count", str(count), "-o", "ndjson", *where)

    assert told.stderr.count(f"{count} message") == 1 if where else len(told.stdout.splitlines()) == count
    assert (tap.held, tap.inbox) == (left, left)  # not acknowledged, and not told


@pytest.mark.usefixtures("quiet")
def test_an_observer_that_loses_its_broker_says_how_much_it_has_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def lost() -> Iterator[Look]:
        yield _look(_deliveries(3))
        raise NotConnected("the broker is gone")

    monkeypatch.setattr(observe, "_directly", lambda *_: lost())

    told = call("observe", "orders", "--broker", "rabbit", "--take", "--to", "observed")

    assert (told.exit_code, told.stderr) == (69, "3 messages written below observed\nthe broker is gone\n")
    assert [*tmp_path.rglob("*.parquet")]


@pytest.mark.usefixtures("quiet")
def test_an_observer_below_a_file_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "observed").write_text("a file")

    told = call("observe", "orders", "--broker", "rabbit", "--take", "--to", "observed")

    assert (told.exit_code, "is not a directory" in told.stderr) == (2, True)


@pytest.mark.usefixtures("quiet")
def test_an_observer_that_cannot_write_takes_nothing_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tap = Tap(waiting=12)
    monkeypatch.setattr(observe, "_directly", lambda *asked: observing.looks(tap, asked[2], 50, tap.clock, tap.elapsed, asked[3]))
    (tmp_path / "date=2026-11-24").write_text("a file")

    told = call("observe", "orders", "--broker", "rabbit", "--take", "--count", "12", "--to", ".")

    assert (told.exit_code, tap.held) == (1, 12)
    assert "date=2026-11-24" in told.stderr


def test_an_observer_of_the_daemon_says_nothing_of_what_it_has_seen(daemon: Daemon, tmp_path: Path) -> None:
    daemon.on("GET /api/v1/observe", deliveries())

    call("observe", "out", "--to", "observed")

    assert not (tmp_path / "observed" / "_reach").exists()
