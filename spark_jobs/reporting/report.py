"""The report for people: one HTML page that needs no network, light and dark, from 400 pixels on."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from ...core.ledger import CLOSING
from ..reconciling.findings import FINDINGS
from ..reconciling.verdict import all_ended, coverage, undecided
from . import timelines
from .charts import Part, histogram, legend, share_bar
from .markup import duration, instant, number, table, text, words
from .style import STYLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERDICTS = {"clean": "Clean", "discrepancies": "Discrepancies", "cannot_say": "Cannot say"}

AT_ONCE = 3
"""So many offenders of each finding are seen at once; the others unfold."""

_ICONS = {
    "clean": '<circle cx="26" cy="26" r="23"/><path d="M15 27l8 8 15-17"/>',
    "discrepancies": '<circle cx="26" cy="26" r="23"/><path d="M18 18l16 16M34 18L18 34"/>',
    "cannot_say": '<circle cx="26" cy="26" r="23"/><path d="M19 20c1-9 15-8 14 1-1 5-7 5-7 11M26 39v.1"/>',
}


def page(told: dict[str, Any]) -> str:
    """The page; `told` is what `verdict.report` gives, with the places of the tables."""
    sections = [
        _head(told),
        _books(told["totals"]),
        "<h2>Findings</h2>",
        _findings(told["findings"], told["beyond_tolerance"]),
        "<h2>Lateness</h2>",
        _lateness(told["lateness"], told["sla_ms"]),
        "<h2>Destinations</h2>",
        timelines.section(told),
        "<h2>Worst offenders</h2>",
        _worst(told["worst"], told["totals"]),
        "<h2>How far the ledgers reach</h2>",
        _bridges(told["bridges"]),
        _foot(told),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{VERDICTS[told["verdict"]]}: delaybridge audit</title><style>{STYLE}</style></head><body><main>'
        f"{''.join(sections)}</main></body></html>\n"
    )


def _head(told: dict[str, Any]) -> str:
    window, word = told["window"], told["verdict"]
    reasons = "".join(f"<li>{text(reason)}</li>" for reason in told["cannot_say"])
    return (
        f'<p class="brand quiet"><span>delaybridge audit</span><span>due {_minute(window["since"])} to {_minute(window["until"])} UTC</span></p>'
        f'<header class="verdict {word}"><svg viewBox="0 0 52 52" aria-hidden="true">{_ICONS[word]}</svg><div>'
        f'<h1 id="verdict">{_headline(told)}</h1><p>{_sentence(told)}</p>{f"<ul>{reasons}</ul>" if reasons else ""}</div></header>'
    )


def _minute(told: str) -> str:
    return instant(told).removesuffix(":00")


def _headline(told: dict[str, Any]) -> str:
    count = sum(told["totals"][name] for name in told["beyond_tolerance"])
    return f"{count:,} {'discrepancy' if count == 1 else 'discrepancies'}" if count else VERDICTS[told["verdict"]]


def _sentence(told: dict[str, Any]) -> str:
    totals = told["totals"]
    if told["verdict"] == "discrepancies":
        what = ", ".join(f"{number(totals[name])} {words(name)}" for name in told["beyond_tolerance"])
        return f"{what}. {'A part of the window cannot be judged yet.' if told['cannot_say'] else ''}"
    if told["verdict"] == "cannot_say":
        return undecided(totals)
    return f"{all_ended(totals)} {coverage(told)}"


def _books(totals: Mapping[str, Any]) -> str:
    """The equation: what was scheduled, and what became of it."""
    ends = [Part(totals["delivered"], "done", "delivered")]
    ends += [Part(totals[name], "other", words(name)) for name in CLOSING if name != "delivered" and totals[name]]
    ends += [Part(totals["pending"], "open", "pending")]
    if totals["residue"]:
        ends.append(Part(totals["residue"], "wrong", "residue: the ledger does not add up"))
    tiles = [(name, totals[name]) for name in ("scheduled", "delivered", "pending", "observed")]
    drawn = "".join(f'<div class="tile"><b>{number(value)}</b>{words(name)}</div>' for name, value in tiles)
    bar = share_bar(ends, "What became of what was scheduled", totals["scheduled"], height=26)
    return f'<div class="tiles">{drawn}</div><h2>What became of it</h2>{bar}{legend(ends)}'


def _findings(findings: Mapping[str, Mapping[str, Any]], beyond: Sequence[str]) -> str:
    drawn = []
    for name, one in findings.items():
        kind = "wrong" if name in beyond else "tolerated" if one["count"] else "none"
        allowed = f" Tolerated: {one['allowed']}." if one["allowed"] != "0" else ""
        meaning = one["meaning"][0].upper() + one["meaning"][1:]
        drawn.append(
            f'<div class="tile {kind}"><b>{number(one["count"])} {words(name)}</b><span class=small>{meaning}.{allowed}</span></div>'
        )
    return f'<div class="tiles findings">{"".join(drawn)}</div>'


def _lateness(lateness: Mapping[str, Any], sla_ms: int) -> str:
    if lateness["max_ms"] is None:
        return '<p class="quiet">Nothing was delivered.</p>'
    tiles = "".join(
        f'<div class="tile"><b>{duration(lateness[name])}</b>{name.removesuffix("_ms")}</div>'
        for name in ("p50_ms", "p95_ms", "p99_ms", "max_ms")
    )
    kinds = legend([Part(0, "done", f"on time: up to the SLA of {duration(sla_ms)}"), Part(0, "wrong", "early, or late")], counted=False)
    intro = "Deliveries by how long after their due time the bridge made them."
    return f'<p class="quiet">{intro}</p>{kinds}<div class="tiles">{tiles}</div>{histogram(lateness["values"])}'


def _worst(rows: Sequence[dict[str, Any]], totals: Mapping[str, Any]) -> str:
    """Some of each finding, in a table of its own; rows of one finding stand together."""
    if not rows:
        return '<p class="quiet">None.</p>'
    groups = {name: list(found) for name, found in groupby(rows, key=lambda row: row["finding"])}
    return "".join(_offenders(name, groups[name], totals[name]) for name in FINDINGS if name in groups)


def _offenders(finding: str, rows: Sequence[dict[str, Any]], total: int) -> str:
    of = f"{len(rows)} of {number(total)}" if total > len(rows) else number(total)
    head = ("message", "destination", "due", "at", "lateness", "bridge", "why")
    first, more = (table(head, [_offender(row) for row in some]) for some in (rows[:AT_ONCE], rows[AT_ONCE:]))
    unfolded = f"<details><summary>{len(rows) - AT_ONCE} more</summary>{more}</details>" if len(rows) > AT_ONCE else ""
    return f'<h3 class="bad">{words(finding)}: {of}</h3>{first}{unfolded}'


def _offender(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    occurrence = f" · occurrence {number(row['occurrence'])}" if row["occurrence"] != 1 else ""
    return [
        (f"<code>{text(row['id'])}</code>{occurrence}", ""),
        (f"{text(row['destination_broker'])} {text(row['destination'])}", ""),
        (instant(row["due_time"]), "t"),
        (instant(row["at"]), "t"),
        ("" if row["lateness_ms"] is None else duration(row["lateness_ms"]), "n"),
        (text(row["bridge"]) if row["bridge"] else "", ""),
        (text(row["detail"]), ""),
    ]


def _bridges(bridges: Sequence[Mapping[str, Any]]) -> str:
    head = ("bridge", "rows", "numbered", "missing from", "reaches to")
    return table(
        head,
        [
            [
                (text(one["bridge"]), ""),
                (number(one["rows"]), "n"),
                (f"{number(one['first'])} to {number(one['last'])}", "t"),
                ("" if one["hole"] is None else number(one["hole"]), "n"),
                (instant(one["reaches"]), "t"),
            ]
            for one in bridges
        ],
    )


def _foot(told: Mapping[str, Any]) -> str:
    return (
        f'<footer class="quiet small"><p>As of {instant(told["as_of"])} UTC; complete up to {instant(told["complete_until"])}; '
        f"SLA {duration(told['sla_ms'])}, clock skew {duration(told['skew_ms'])}, grace {duration(told['grace_ms'])}. {coverage(told)}</p>"
        f"<p>All discrepancies: <code>{text(told['tables']['discrepancies'])}</code></p></footer>"
    )
