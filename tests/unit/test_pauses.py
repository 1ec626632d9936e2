"""Paused routes over restarts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from delaybridge.bridge.pauses import Pauses

if TYPE_CHECKING:
    import pytest


def test_a_paused_route_is_paused_after_a_restart_until_it_is_resumed(tmp_path: Path) -> None:
    told: list[str] = []
    Pauses(tmp_path / "paused.json", lambda: None).pause("orders")

    again = Pauses(tmp_path / "paused.json", lambda: told.append("resumed"))
    assert again.routes == {"orders"}
    again.resume("orders")

    assert told == ["resumed"]
    assert Pauses(tmp_path / "paused.json", lambda: None).routes == set()


def test_the_file_is_on_the_disk_before_it_takes_the_old_ones_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss of power must not leave an empty file behind, with which the bridge does not start."""
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()).removeprefix(str(tmp_path)))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)

    Pauses(tmp_path / "paused.json", lambda: None).pause("orders")

    assert synced == ["/paused.tmp", ""]
