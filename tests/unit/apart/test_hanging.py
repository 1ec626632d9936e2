"""A client's process that does nothing any more, whatever it was at, is given up: it holds no thread of the bridge for ever."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import wait_until
from unit.apart.clients import outgoing, pid_of

from delaybridge.adapters.base import NotConnected, Outcome
from delaybridge.bridge.apart import process
from delaybridge.bridge.apart import sink as sink_module
from delaybridge.bridge.apart import source as source_module
from delaybridge.bridge.apart.frames import Kind

if TYPE_CHECKING:
    from delaybridge.bridge.apart.sink import ApartSink
    from delaybridge.bridge.apart.source import ApartSource


def test_a_process_that_does_nothing_any_more_is_given_up(source: ApartSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PATIENCE", 1)
    monkeypatch.setattr(source_module, "PATIENCE", 1)
    source.connect()
    stopped = pid_of(source)
    os.kill(stopped, signal.SIGSTOP)

    with pytest.raises(NotConnected, match="ended with -9"):
        source.receive(1, 0.1)

    source.connect()
    os.kill(pid_of(source), signal.SIGSTOP)
    source.close()
    source.connect()
    assert pid_of(source) != stopped


def test_a_process_that_leaves_off_in_the_middle_of_what_it_says_is_given_up(source: ApartSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it is stopped while it hands over a large batch."""
    starts = subprocess.Popen

    def begins_an_answer(command: list[str], **options: Any) -> Any:
        says = "import os, signal, sys; os.write(int(sys.argv[1]), b'\\0\\0\\0\\x10begun'); signal.pause()"  # five bytes of sixteen
        return starts([command[0], "-c", says, command[-2]], **options)

    monkeypatch.setattr(process, "PATIENCE", 1)
    monkeypatch.setattr(subprocess, "Popen", begins_an_answer)
    with pytest.raises(NotConnected, match="ended with -9"):
        source.connect()


def test_a_sinks_process_that_says_nothing_any_more_is_given_up_and_what_is_under_way_is_told_as_unknown(
    sink: ApartSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "SILENCE", 2)
    outcomes: list[Outcome] = []
    sink.connect(outcomes.extend)
    os.kill(pid_of(sink), signal.SIGSTOP)
    sink.publish(outgoing(b"1"))

    wait_until(lambda: bool(outcomes), "the outcome")
    ((tag, error),) = outcomes
    assert (tag, str(error)) == (b"1", "the client's process ended with -9")
    with pytest.raises(NotConnected):
        sink.publish(())


def test_a_sinks_process_that_has_nothing_to_do_is_kept(sink: ApartSink, monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[int] = []
    monkeypatch.setattr(sink_module._Session, "_heard", lambda _, kind, __: beats.append(kind))
    sink.connect(lambda _: None)

    wait_until(lambda: len(beats) > 1, "two beats")
    assert set(beats) == {Kind.NOTHING}


def test_a_sinks_process_that_does_not_close_is_given_up_and_what_is_under_way_is_told_by_then(
    sink: ApartSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "PATIENCE", 1)
    outcomes: list[Outcome] = []
    sink.connect(outcomes.extend)
    stopped = pid_of(sink)
    os.kill(stopped, signal.SIGSTOP)
    sink.publish(outgoing(b"1"))

    sink.close()

    assert [(tag, type(error)) for tag, error in outcomes] == [(b"1", NotConnected)]
    sink.connect(outcomes.extend)
    assert pid_of(sink) != stopped


def test_a_process_that_does_not_end_when_it_is_left_is_ended(source: ApartSource, monkeypatch: pytest.MonkeyPatch) -> None:
    source.connect()
    stopped = pid_of(source)
    source.close()
    monkeypatch.setattr(process, "PATIENCE", 1)  # not before: a slow machine may take longer to close
    os.kill(stopped, signal.SIGSTOP)

    source.end()

    assert not Path(f"/proc/{stopped}").exists()
