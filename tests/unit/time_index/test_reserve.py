"""What a store keeps aside on its disk, and keeps to itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delaybridge.core.time_index import TimeIndex
from delaybridge.core.time_index.disk import Disk

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


def test_the_reserve_holds_real_blocks_until_a_write_finds_none(tmp_path: Path) -> None:
    """Given up earlier, its room would be taken by whatever else fills the disk."""
    free = 10 * MIB
    reserve = tmp_path / "reserve"
    space = Disk(reserve, MIB, 2 * MIB, lambda: free)
    assert reserve.stat().st_blocks * 512 >= MIB

    free = 0
    assert not space.room()
    assert reserve.exists()
    space.release()
    assert not reserve.exists()
    free = 2 * MIB + MIB // 2
    assert space.room()
    assert not reserve.exists()
    free = 3 * MIB
    assert space.room()
    assert reserve.exists()


def test_a_reserve_without_blocks_is_filled_when_the_store_opens(tmp_path: Path) -> None:
    """A copy may have holes where the store had blocks, and a kill leaves an empty file."""
    reserve = tmp_path / "reserve"
    for size in (0, MIB):
        with reserve.open("wb") as file:
            file.truncate(size)
        Disk(reserve, MIB, 2 * MIB, lambda: 10 * MIB)
        assert reserve.stat().st_blocks * 512 >= MIB


def test_a_reserve_that_cannot_be_made_stops_nothing_and_is_tried_again(tmp_path: Path) -> None:
    reserve = tmp_path / "reserve"
    reserve.mkdir()
    space = Disk(reserve, MIB, 2 * MIB, lambda: 10 * MIB)
    assert space.room()

    reserve.rmdir()
    assert space.room()
    assert reserve.stat().st_blocks * 512 >= MIB


def test_only_its_own_user_may_read_the_messages_of_a_store(tmp_path: Path) -> None:
    TimeIndex(tmp_path / "data", bridge="b", min_free_disk=0, reserve_bytes=0).close()
    assert (tmp_path / "data" / "db").stat().st_mode & 0o777 == 0o700
