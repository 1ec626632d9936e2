"""Tables on a terminal of eighty columns."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from delaybridge.bridge.cli.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable

ID = "db3c5e122d000301a2234340a70000000000000006"
DUE = "2026-11-28T17:45:39.751Z"


@pytest.fixture
def drawn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The lines of a table with one row, without its headings."""

    def lines(*cells: str) -> list[str]:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        table("ABCD"[: len(cells)], [cells])
        return capsys.readouterr().out.splitlines()[1:]

    return lines


def test_an_id_and_a_time_stay_in_one_piece_to_be_copied_where_the_table_has_no_room(drawn: Callable[..., list[str]]) -> None:
    to = "rabbit: /exchanges/orders.real/eu"

    assert drawn(DUE, ID, to, "orders") == [f"{DUE}  {ID}  {to}  orders"]


def test_words_go_on_in_the_next_line_where_each_of_them_has_room(drawn: Callable[..., list[str]]) -> None:
    assert drawn(DUE, "x-delay: 'soon' is not a duration such as 90s, 1d12h or PT15M") == [
        f"{DUE}  x-delay: 'soon' is not a duration such as 90s, 1d12h",
        f"{'':{len(DUE)}}  or PT15M",
    ]
