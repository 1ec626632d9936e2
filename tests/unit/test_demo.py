"""The parts of `delaybridge demo` that are not shown by running it."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from delaybridge.adapters.base import Received
from delaybridge.bridge import demo
from delaybridge.bridge.demo import proof
from delaybridge.bridge.demo.faults import DELAY_MS, PLAN, Faults, Finding, Planted
from delaybridge.core.message import message

T0 = 1_750_000_000_000
ALL = [Planted(fault, body, f"id of {body}", occurrence) for (body, occurrence), fault in PLAN.items()]


def _received(body: str, occurrence: int = 1) -> Received:
    return Received(message(body.encode(), {"x-delay-id": f"id of {body}", "x-delay-occurrence": occurrence}), "", b"")


def _bodies(received: list[Received]) -> list[bytes | None]:
    return [one.message.body for one in received]


def test_what_is_not_planned_arrives_once_and_at_once() -> None:
    faults = Faults()

    arrived = faults.through([_received("SQS 1"), _received("repeats (ActiveMQ) 7", 2)], T0)

    assert _bodies(arrived) == [b"SQS 1", b"repeats (ActiveMQ) 7"]
    assert faults.planted == []


def test_what_is_lost_does_not_arrive_what_is_doubled_arrives_twice_what_is_delayed_when_its_time_has_come() -> None:
    faults = Faults()

    at_once = faults.through([_received(body, occurrence) for body, occurrence in PLAN], T0)
    before = faults.through([], T0 + DELAY_MS - 1)
    later = faults.through([], T0 + DELAY_MS)

    assert _bodies(at_once) == [b"Pulsar 33"] * 2 + [b"SQS 90"] * 2
    assert before == []
    assert _bodies(later) == [b"AMQP 1.0 12", b"Artemis 40"]
    assert faults.planted == ALL
    assert faults.held == []


def _judged(found: list[Finding]) -> tuple[bool, str]:
    shown = StringIO()
    return proof._exactly(ALL, Counter(found), Console(file=shown, width=120)), shown.getvalue()


def test_the_audit_must_name_every_fault_and_nothing_else() -> None:
    right = [fault.finding for fault in ALL]

    assert _judged(right)[0]
    assert not _judged(right[1:])[0]
    assert not _judged([*right, right[0]])[0]
    wrong, told = _judged([*right, ("late", "id of SQS 2", 1)])
    assert not wrong
    assert "left alone" in told


def _java(folder: Path, version: str) -> str:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_java_of_17_or_later_is_good_enough(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", _java(tmp_path, version))

    assert proof.unavailable() is None


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_an_older_java_is_named(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", _java(tmp_path, version))

    assert f'this is openjdk version "{version}"' in str(proof.unavailable())


def test_without_java_the_faults_are_refused_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert demo.demo(faults=True) == 1
    assert "there is no Java in JAVA_HOME" in capsys.readouterr().out


def test_what_to_install_for_the_audit_is_told_in_full(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    assert demo.demo(faults=True) == 1
    assert "pip install '.[spark]' in a clone" in capsys.readouterr().out


@pytest.mark.parametrize(("verdict", "exit_code"), [("clean", 0), ("discrepancies", 1)])
def test_a_report_that_was_named_stays_also_where_the_audit_found_what_it_should_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: str, exit_code: int
) -> None:
    class Run:
        ended, window, planted = True, (0, 1), None

        def __init__(self, folder: Path, *_: object) -> None:
            (folder / "store").mkdir()

        def run(self) -> bool:
            return True

    def audit(folder: Path, *_: object) -> subprocess.CompletedProcess[str]:
        page = folder / "audit" / "report.html"
        page.parent.mkdir()
        page.touch()
        totals = dict.fromkeys(("scheduled", "delivered", "observed"), 1)
        return subprocess.CompletedProcess([], exit_code, json.dumps({"verdict": verdict, "totals": totals, "html": page.as_uri()}))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(demo, "Demo", Run)
    monkeypatch.setattr(proof, "unavailable", lambda: None)
    monkeypatch.setattr(proof, "_audit", audit)
    monkeypatch.setattr(proof, "_findings", lambda _: Counter())

    assert demo.demo() == exit_code
    assert [page.name for page in tmp_path.glob("*/audit/*")] == ["report.html"]
    assert list(tmp_path.glob("*/store")) == []
