"""When the thread that writes ledger files writes them, and what it tells where it cannot."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest.mock import Mock

from structlog.testing import capture_logs

from delaybridge.bridge.config import Config
from delaybridge.bridge.ledger import worker as module
from delaybridge.bridge.ledger.worker import MAINTAIN, LedgerWorker
from delaybridge.bridge.workers import TOLD_AGAIN

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_files_are_written_at_each_interval_and_at_the_end_and_space_is_given_back_more_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, end, interval = 0.0, 70.0, 25.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    store = Mock(unfiled=Mock(count=lambda: 3), mended=lambda: "")
    config = Config.model_validate({"store": {"path": tmp_path}, "ledger": {"flush_interval": "25s"}})
    worker = LedgerWorker(store, config, lambda: int(now), lambda *_: None)
    flushed: list[float] = []
    worker.files = Mock(flush_all=lambda: flushed.append(now))

    def wait(seconds: float) -> bool:
        nonlocal now
        now = min(now + seconds, end)
        return now == end

    monkeypatch.setattr(worker.stopping, "wait", wait)
    assert (worker.status().backlog, worker.status().error) == (3, "")

    worker.run()

    assert flushed == [interval, 2 * interval, end]
    marked = [call.args[0] for call in worker.files.mark.call_args_list]
    assert marked == flushed
    maintained = [call.args[0] for call in store.maintain.call_args_list]
    assert maintained == [10, 20, 25, 35, 45, 50, 60]
    assert max(later - earlier for earlier, later in pairwise(maintained)) <= MAINTAIN


def test_a_disk_that_stays_full_is_told_once_a_minute_and_another_reason_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    worker = LedgerWorker(Mock(), Config.model_validate({"store": {"path": tmp_path}}), lambda: 0, lambda *_: None)
    told = []
    for seconds, reason in ((0.0, "full"), (TOLD_AGAIN - 1, "full"), (1.0, "full"), (0.0, "no rights"), (0.0, ""), (0.0, "no rights")):
        now += seconds
        worker.files = Mock(flush_all=Mock(side_effect=OSError(reason) if reason else None))
        with capture_logs() as logs:
            worker._flush()
        told.append([line["error"] for line in logs])
        assert worker._error == reason
    assert told == [["full"], [], ["full"], ["no rights"], [], ["no rights"]]


def test_that_the_disk_failed_the_store_and_was_mended_is_told_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Mock(unfiled=Mock(count=lambda: 0), mended=Mock(side_effect=["", "IO error: fsync", ""]))
    worker = LedgerWorker(store, Config.model_validate({"store": {"path": tmp_path}}), lambda: 0, lambda *_: None)
    worker.files = Mock()
    monkeypatch.setattr(worker.stopping, "wait", Mock(side_effect=[False, False, False, True]))
    with capture_logs() as logs:
        worker.run()

    assert [(line["event"], line["log_level"], line["error"]) for line in logs] == [("store_mended", "warning", "IO error: fsync")]
