"""Paused routes over restarts."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from delaybridge.bridge import durable
from delaybridge.bridge.delivery.pauses import Pauses
from delaybridge.core.store import StoreError


def test_a_paused_route_is_paused_after_a_restart_until_it_is_resumed(tmp_path: Path) -> None:
    told: list[str] = []
    Pauses(tmp_path / "paused.json", lambda: None).pause("orders")

    again = Pauses(tmp_path / "paused.json", lambda: told.append("resumed"))
    assert again.routes == {"orders"}
    again.resume("orders")

    assert told == ["resumed"]
    assert Pauses(tmp_path / "paused.json", lambda: None).routes == set()


def test_a_route_is_resumed_while_another_one_stays_paused(tmp_path: Path) -> None:
    pauses = Pauses(tmp_path / "paused.json", lambda: None)
    pauses.pause("orders")
    pauses.pause("bills")
    assert Pauses(tmp_path / "paused.json", lambda: None).routes == {"orders", "bills"}

    pauses.resume("orders")

    assert pauses.routes == Pauses(tmp_path / "paused.json", lambda: None).routes == {"bills"}


def test_the_file_is_on_the_disk_before_it_takes_the_old_ones_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss of power must not leave an empty file behind, with which the bridge does not start."""
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()).removeprefix(str(tmp_path)))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)

    Pauses(tmp_path / "paused.json", lambda: None).pause("orders")

    assert synced == ["/.paused.json.tmp", ""]


def test_a_pause_that_cannot_be_kept_does_not_happen_and_neither_does_a_resume(tmp_path: Path) -> None:
    """On a full disk, say: who was told that it failed must not find it done, until the next start."""
    told: list[str] = []
    pauses = Pauses(tmp_path / "here" / "paused.json", lambda: told.append("resumed"))

    with pytest.raises(StoreError, match="nothing was changed"):
        pauses.pause("orders")
    assert pauses.routes == set()

    (tmp_path / "here").mkdir()
    pauses.pause("orders")
    (tmp_path / "here").rename(tmp_path / "away")
    with pytest.raises(StoreError, match="nothing was changed"):
        pauses.resume("orders")
    assert pauses.routes == {"orders"}
    assert told == []


@pytest.mark.parametrize("text", [b"", b"orders", b'{"orders": true}', b"[1]", b'["\xff"]'])
def test_a_file_that_tells_nothing_is_named_with_what_to_do(tmp_path: Path, text: bytes) -> None:
    """Somebody has edited it, or restored it from a backup that was cut off: to publish what was paused would be a guess."""
    (tmp_path / "paused.json").write_bytes(text)

    with pytest.raises(StoreError, match=r"paused\.json does not tell .*write them there as a JSON list, \[\] for none"):
        Pauses(tmp_path / "paused.json", lambda: None)


def test_a_pause_that_took_its_place_and_may_not_last_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the rename could not be made durable: who was told that nothing was changed must not find the route paused after the next start."""
    file, synced = tmp_path / "paused.json", durable.sync_directory
    pauses = Pauses(file, lambda: None)
    pauses.pause("bills")

    def fail_once(directory: Path) -> None:
        monkeypatch.setattr(durable, "sync_directory", synced)
        raise OSError(5, f"{directory}: Input/output error")

    for change in (partial(pauses.pause, "orders"), partial(pauses.resume, "bills")):
        monkeypatch.setattr(durable, "sync_directory", fail_once)
        with pytest.raises(StoreError, match="nothing was changed"):
            change()
        assert pauses.routes == Pauses(file, lambda: None).routes == {"bills"}


def test_a_first_pause_that_may_not_last_is_taken_back_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "paused.json"
    pauses = Pauses(file, lambda: None)
    monkeypatch.setattr(durable, "sync_directory", Mock(side_effect=OSError(5, "Input/output error")))

    with pytest.raises(StoreError, match="nothing was changed"):
        pauses.pause("orders")

    assert Pauses(file, lambda: None).routes == set()
