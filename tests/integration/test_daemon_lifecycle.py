"""Start, signals, reload and the end of the daemon, beside a real RabbitMQ."""

from __future__ import annotations

import ctypes
import signal
import socket
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from integration.daemon import Daemon
from integration.rabbit import Rabbit, config, rabbit
from integration.stores import in_time_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.stores import Waiting


@pytest.fixture
def place(rabbitmq: Any) -> Iterator[Rabbit]:
    with rabbit(rabbitmq.url) as made:
        made.queue("in")
        made.queue("out")
        yield made


@pytest.fixture
def daemon(rabbitmq: Any, place: Rabbit, waiting: Waiting, tmp_path: Path) -> Iterator[Daemon]:
    route = {
        "name": "jobs",
        "from": {"broker": "rabbit", "queue": place.name("in")},
        "to": {"broker": "rabbit", "address": place.address("out")},
    }
    with Daemon(tmp_path, waiting(config(rabbitmq.url, "", [route]))) as made:
        yield made


def failing(daemon: Daemon) -> set[str]:
    """The names of the checks that keep it from being ready."""
    answer = daemon.http.get("/readyz", params={"verbose": ""})
    assert answer.status_code == 503
    return {check["name"] for check in answer.json()["checks"] if not check["ok"]}


def alive(daemon: Daemon) -> bool:
    try:
        return daemon.http.get("/livez").status_code == 200
    except httpx.TransportError:
        return False


def test_sigterm_in_the_middle_of_a_burst_drains_so_that_nothing_comes_twice(place: Rabbit, daemon: Daemon) -> None:
    daemon.start()
    due = time.time_ns() // 1_000_000 + 3000
    for number in range(1500):
        place.send("in", b"%d" % number, x_delay_until=due)
    first = place.one("out")
    assert daemon.terminate() == 0
    rows = daemon.ledger()
    delivered = sum(row["event"] == "delivered" for row in rows)
    assert delivered == place.waiting("out") + 1
    daemon.start()
    arrivals = [first, *place.receive("out", 1499)]
    assert {arrival.body for arrival in arrivals} == {b"%d" % number for number in range(1500)}
    daemon.wait_for(lambda: daemon.pending() == 0, "the last to be settled")
    assert daemon.terminate() == 0
    assert place.waiting("out") == 0
    events = [row["event"] for row in daemon.ledger()]
    assert (events.count("scheduled"), events.count("delivered"), len(events)) == (1500, 1500, 3000)


@in_time_index("a process that ends, whatever waits where")
def test_a_second_signal_ends_it_at_once(place: Rabbit, daemon: Daemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        daemon.config["brokers"]["mute"] = {"type": "rabbitmq", "url": f"amqp://127.0.0.1:{port}", "connection_timeout": 20}
        daemon.config["routes"][0]["to"] = {"broker": "mute", "address": place.address("out")}
        daemon.write()
        daemon.start(ready=False)
        with mute.accept()[0]:
            daemon.wait_for(lambda: alive(daemon), "the API")
            daemon.send_signal(signal.SIGTERM)
            daemon.wait_for(lambda: bool(daemon.log("stopping")), "the first signal to be heard")
            assert daemon.process is not None
            assert daemon.process.poll() is None, "it ended before the second signal: this test shows nothing"
            daemon.send_signal(signal.SIGTERM)
            assert daemon.ended() == 143


@in_time_index("which signals there are")
def test_sigint_drains_as_well(daemon: Daemon) -> None:
    daemon.start()
    daemon.send_signal(signal.SIGINT)
    assert daemon.ended() == 0


@in_time_index("which thread hears a signal")
def test_a_signal_that_the_kernel_gives_to_another_thread_than_the_main_one_drains_as_well(daemon: Daemon) -> None:
    daemon.start()
    assert daemon.process is not None
    process = daemon.process.pid
    others = [int(each.name) for each in Path(f"/proc/{process}/task").iterdir() if int(each.name) != process]
    kernel = ctypes.CDLL(None, use_errno=True)
    assert any(kernel.tgkill(process, other, signal.SIGTERM) == 0 for other in sorted(others, reverse=True)), "threads come and go"
    assert daemon.ended() == 0
    assert daemon.log("stopped")


@in_time_index("with level queues two daemons have two directories, and may share the rest")
def test_a_second_daemon_on_the_same_store_exits_with_75_and_harms_nothing(place: Rabbit, daemon: Daemon, tmp_path: Path) -> None:
    daemon.start()
    other = tmp_path / "other"
    other.mkdir()
    with Daemon(other, daemon.config | {"store": {"path": str(daemon.store)}, "http": {}}) as second:
        second.start(ready=False)
        assert second.ended() == 75
        assert second.log("store_locked")
    place.send("in", b"still there", x_delay=100)
    assert place.one("out").body == b"still there"


@in_time_index("nothing is started")
def test_a_bad_configuration_exits_with_78_and_says_where(daemon: Daemon) -> None:
    daemon.config["lane"] = {"windw": 3}
    daemon.write()
    ended = daemon.run("run")
    assert ended.returncode == 78
    assert "lane.windw" in ended.stderr
    assert f"{daemon.file}:" in ended.stderr


@in_time_index("the same threads connect; those of levels are tried in test_level_queues_*")
def test_without_a_broker_it_is_alive_and_not_ready_and_connects_when_there_is_one(place: Rabbit, daemon: Daemon) -> None:
    url = daemon.config["brokers"]["rabbit"]["url"]
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    daemon.config["brokers"]["rabbit"]["url"] = [f"amqp://127.0.0.1:{port}"]
    daemon.write()
    daemon.start(ready=False)
    daemon.wait_for(lambda: alive(daemon), "the API")
    assert failing(daemon) == {"source jobs", "destination rabbit"}
    assert daemon.terminate() == 0
    daemon.config["brokers"]["rabbit"]["url"] = [f"amqp://127.0.0.1:{port}", url]
    daemon.write()
    daemon.start()
    place.send("in", b"by the second URL", x_delay=50)
    assert place.one("out").body == b"by the second URL"


def test_what_waited_for_its_destination_while_the_bridge_ran_was_not_missed_when_it_is_restarted(place: Rabbit, daemon: Daemon) -> None:
    daemon.config["routes"][0]["to"]["address"] = place.address("later")
    daemon.config["retry"] = {"cap": 200}
    daemon.write()
    daemon.start()
    place.send("in", b"once", x_delay=50, x_delay_misfire="skip")
    place.send("in", b"repeat", x_delay=50, x_delay_period=1000, x_delay_repeat=2)
    last = time.monotonic() + 2.05
    daemon.wait_for(lambda: daemon.get("/status")["held"] == 2 and time.monotonic() > last, "all to be due, at a queue that is not there")
    assert daemon.terminate() == 0
    place.queue("later")
    daemon.start()
    bodies = Counter(arrival.body for arrival in place.receive("later", 4))
    assert bodies == {b"once": 1, b"repeat": 3}


@in_time_index("what a file changes is asked at the door")
def test_sighup_takes_over_a_good_file_and_refuses_a_bad_one(place: Rabbit, daemon: Daemon) -> None:
    chosen = place.queue("chosen")
    route = daemon.config["routes"][0]
    route["dead_letter"] = place.address("dead")
    place.queue("dead")
    daemon.write()
    daemon.start()

    def choose(body: bytes) -> None:
        place.send("in", body, x_delay=50, x_delay_to=f"/queues/{chosen}")

    choose(b"refused")
    assert place.one("dead").headers["x-delay-reason"] == "destination_not_allowed"
    route["allow_to"] = ["/queues/*"]
    daemon.write()
    daemon.send_signal(signal.SIGHUP)
    daemon.wait_for(lambda: bool(daemon.log("reloaded")), "the reload")
    choose(b"allowed")
    assert place.one("chosen").body == b"allowed"
    daemon.file.write_text(daemon.file.read_text() + "nonsense: 1\n")
    daemon.send_signal(signal.SIGHUP)
    daemon.wait_for(lambda: len(daemon.log("reload_refused")) == 1, "the refusal")
    choose(b"still allowed")
    assert place.one("chosen").body == b"still allowed"
    daemon.config["http"]["port"] += 1
    daemon.write()
    daemon.send_signal(signal.SIGHUP)
    daemon.wait_for(lambda: len(daemon.log("reload_refused")) == 2, "the second refusal")
    assert daemon.log("reload_refused")[1]["needs_restart"] == ["http.port"]
    assert alive(daemon)


@in_time_index("it asks for the shelf, and level queues have none")
def test_logs_are_json_lines_without_bodies_header_values_or_passwords(rabbitmq: Any, place: Rabbit, daemon: Daemon) -> None:
    daemon.config["logs"]["level"] = "debug"
    daemon.config["routes"][0]["allow_to"] = ["*"]
    daemon.config["retry"] = {"cap": 200}
    daemon.write()
    daemon.start()
    place.send("in", b"BODYMARKER", x_delay=50, other="VALUEMARKER")
    place.send("in", b"BODYMARKER", x_delay="VALUEMARKER")
    place.send("in", b"BODYMARKER", x_delay=50, x_delay_to=place.address("missing"), other="VALUEMARKER")
    place.one("out")
    daemon.wait_for(lambda: daemon.get("/status")["held"] == 1 and daemon.get("/status")["shelved"] == 1, "a held and a shelved message")
    daemon.http.get("/api/v1/messages/unknown")
    assert daemon.terminate() == 0
    lines = daemon.log()
    assert {"started", "connected", "stopped"} <= {line["event"] for line in lines}
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    text = (daemon.directory / "log").read_text()
    assert "MARKER" not in text
    assert rabbitmq.url not in text


@in_time_index("it is the time index that fills the disk")
def test_with_too_little_disk_messages_stay_in_rabbitmq_and_what_is_stored_goes_out(place: Rabbit, daemon: Daemon) -> None:
    daemon.start()
    due = time.time_ns() // 1_000_000 + 8000  # a stalled machine has it stored and the daemon stopped by then
    place.send("in", b"stored before", x_delay_until=due)
    daemon.wait_for(lambda: daemon.pending() == 1, "the message to be stored")
    assert daemon.terminate() == 0
    daemon.config["store"]["min_free_disk"] = "900 PB"
    daemon.write()
    daemon.start(ready=False)
    daemon.wait_for(lambda: alive(daemon) and failing(daemon) == {"disk"}, "the disk alone to be the matter")
    place.send("in", b"not now", x_delay=10)
    arrival = place.one("out")
    assert (arrival.body, arrival.due) == (b"stored before", due)
    daemon.wait_for(lambda: daemon.pending() == 0, "the delivery to be settled")
    assert daemon.log("disk_low")
    assert not daemon.get("/status")["store"]["room"]
    assert daemon.terminate() == 0
    assert place.waiting("in") == 1
    del daemon.config["store"]["min_free_disk"]
    daemon.write()
    daemon.start()
    assert place.one("out").body == b"not now"
