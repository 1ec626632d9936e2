"""Files that are there whole or not at all, also after a loss of power."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def put_in_place(unfinished: Path, target: Path) -> None:
    """Rename a written file to its name, durably: until then readers find the earlier file. Both are in one directory."""
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(target)
    sync_directory(target.parent)


def replace_text(target: Path, text: str) -> None:
    """Write a small file, in the place of the earlier one. OSError where it cannot be written: also where its directory is missing."""
    unfinished = target.with_name(f".{target.name}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    put_in_place(unfinished, target)


def sync_directory(directory: Path) -> None:
    """Make a rename or a new entry in this directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
