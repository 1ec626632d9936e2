"""Values of the configuration that are read otherwise than they look, or are nobody's wish."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.config_problems import problems

from delaybridge.bridge.config.file import load

pytestmark = pytest.mark.usefixtures("alone")


def test_a_variable_that_is_set_to_nothing_puts_the_ledger_where_it_is_without_one(file: Path) -> None:
    file.write_text('store: {path: st}\nledger: {path: "${LEDGER:}"}')

    assert load().ledger_path == Path("st/ledger")


def test_a_store_in_no_directory_is_not_made_in_the_current_one(file: Path) -> None:
    assert problems(file, 'store: {path: "${STORE:}"}') == ["1: store.path: is empty: name a directory, or leave the key out"]


@pytest.mark.parametrize("key", ["store", "ledger"])
def test_a_path_that_no_system_takes_is_told_before_it_is_used(file: Path, key: str) -> None:
    assert problems(file, f'{key}: {{path: "a\\0b"}}') == [f"1: {key}.path: holds a NUL, which no path can"]
