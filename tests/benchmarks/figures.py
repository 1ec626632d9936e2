"""What was measured, beside its budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One measured number. `ok` is None where there is no budget for it."""

    name: str
    value: float
    unit: str
    budget: str = ""
    ok: bool | None = None


def at_least(name: str, value: float, unit: str, budget: float) -> Figure:
    return Figure(name, value, unit, f">= {budget:g}", value >= budget)


def at_most(name: str, value: float, unit: str, budget: float) -> Figure:
    return Figure(name, value, unit, f"<= {budget:g}", value <= budget)


def beside(name: str, value: float, unit: str, wanted: float) -> Figure:
    """What is wanted stands beside it, and binds nobody."""
    return Figure(name, value, unit, f"({wanted:g})")


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least so many percent do not exceed; `values` are not empty."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100).__int__() - 1)]


def table_of(figures: Iterable[Figure]) -> Table:
    table = Table(title="delaybridge: measured against its budgets")
    for column, justify in (("figure", "left"), ("measured", "right"), ("unit", "left"), ("budget", "right"), ("", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]  # rich wants literals
    for figure in figures:
        verdict = {None: "", True: "[green]ok", False: "[bold red]missed"}[figure.ok]
        table.add_row(figure.name, shown(figure.value), figure.unit, figure.budget, verdict)
    return table


def shown(value: float) -> str:
    """Three figures behind the point for ratios and milliseconds, none for thousands."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"


def plain(figures: Iterable[Figure]) -> list[dict[str, Any]]:
    return [asdict(figure) for figure in figures]
