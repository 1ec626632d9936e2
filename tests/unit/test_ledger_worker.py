"""What the thread that writes ledger files tells where it cannot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest.mock import Mock

from structlog.testing import capture_logs

from delaybridge.bridge.config import Config
from delaybridge.bridge.ledger import worker as module
from delaybridge.bridge.ledger.worker import LedgerWorker
from delaybridge.bridge.workers import TOLD_AGAIN

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_disk_that_stays_full_is_told_once_a_minute_and_another_reason_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    worker = LedgerWorker(Mock(), Config.model_validate({"store": {"path": tmp_path}}), lambda: 0, Mock(), lambda *_: None)
    told = []
    for seconds, reason in ((0.0, "full"), (TOLD_AGAIN - 1, "full"), (1.0, "full"), (0.0, "no rights"), (0.0, ""), (0.0, "no rights")):
        now += seconds
        worker.files = Mock(flush_all=Mock(side_effect=OSError(reason) if reason else None))
        with capture_logs() as logs:
            worker._flush()
        told.append([line["error"] for line in logs])
        assert worker._error == reason
    assert told == [["full"], [], ["full"], ["no rights"], [], ["no rights"]]
