"""Commands for those who produce messages: what would a header do, and do it."""

# ruff: noqa: PLC0415 - commands import late, so that --help is quick

from __future__ import annotations

import base64
import json
import math
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import FAILED, ConfigOption, Output, OutputOption, TokenOption, UrlOption, connect

if TYPE_CHECKING:
    from ...core.explain import Explanation
    from ...core.fields import Value
    from ...core.levels import Hops

commands = typer.Typer()
_HEADER = re.compile(r"(?P<name>[^=]+?)(?P<typed>:)?=(?P<value>.*)", re.DOTALL)
_HEADER_HELP = "NAME=VALUE is text; NAME:=VALUE is a JSON number, true, false or null."


def _headers(texts: list[str]) -> dict[str, Value]:
    headers: dict[str, Value] = {}
    for name, value in map(_header, texts):
        if name in headers:
            raise typer.BadParameter(f"{name!r} is given twice: a message has one value of each name")
        headers[name] = value
    return headers


def _header(text: str) -> tuple[str, Value]:
    found = _HEADER.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a header: write NAME=VALUE, or NAME:=VALUE for a number")
    if not found["typed"]:
        return found["name"], found["value"]
    try:
        value: Value = json.loads(found["value"])
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: what follows `:=` must be JSON, such as 5000 or true") from error
    if isinstance(value, float) and not math.isfinite(value):  # what Python reads, and JSON has not
        raise typer.BadParameter(f"{text!r}: a number in JSON is finite, and at most some 1.8e308")
    if isinstance(value, list | dict):
        raise typer.BadParameter(f"{text!r}: a header holds one value, not a list or an object")
    return found["name"], value


@commands.command(epilog="Example: delaybridge explain x-delay-period=10m x-delay-repeat=5")
def explain(
    headers: Annotated[list[str], typer.Argument(metavar="HEADER", help=_HEADER_HELP)],
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="As if the message arrived then: RFC 3339 or epoch ms [default: now]")
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=1000, metavar="NUMBER", help="How many deliveries to show.")] = 5,
    levels: Annotated[
        bool, typer.Option("--levels", help="Show the way through level queues [default: where they are configured]")
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what headers would do: the next deliveries, or why they are refused (exit status 1). Needs no daemon."""
    import msgspec

    from ...adapters.clock import wall_clock
    from ...core.durations import parse_instant
    from ...core.explain import explain as read
    from ...core.levels import Levels
    from ..config.file import in_level_queues, load_limits
    from .tables import show_one

    try:
        now = parse_instant(at) if at else wall_clock()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--at") from error
    given = _headers(headers)
    try:
        limits = load_limits(config).core()
        found = read(given, now, limits, count)
    except (OverflowError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    shown = {**_explained(found, now, given), "note": _note(found, given)}
    as_json = msgspec.to_builtins(found)
    if found.deliveries and (levels or in_level_queues(config)):
        hops, rest = Levels(limits.levels).path(max(0, found.deliveries[0].due - now))
        shown["in level queues"] = _path(hops, rest)
        as_json["level_queues"] = {"hops": msgspec.to_builtins(hops), "in_memory": rest}
    show_one(as_json, shown, output)
    if found.verdict == "refused":
        raise typer.Exit(FAILED)


def _explained(found: Explanation, now: int, given: dict[str, Value]) -> dict[str, Any]:
    from ..text import instant

    zone = _zone(given) if found.verdict == "delayed" else None
    deliveries = [f"{instant(each.due)}  {_local(each.due, zone)}{_from(now, each.due)}" for each in found.deliveries]
    left = found.headers if found.verdict != "refused" else {}
    return {
        "verdict": {"pass_through": "passed through at once"}.get(found.verdict, found.verdict),
        "dialect": found.dialect,
        "reason": found.reason,
        "detail": found.detail,
        "id": found.id,
        "to": found.to,
        "deliveries": "\n".join([*deliveries, *(["and more"] if found.more else [])]),
        "ends": instant(found.ends),
        "misfire": found.misfire if found.verdict == "delayed" else "",
        "headers left": "\n".join(f"{name}: {value!r}" for name, value in left.items()),
    }


def _zone(given: dict[str, Value]) -> str | None:
    """That of the cron; it is known to be one where the message is delayed."""
    zone = next((given[name] for name in ("x-delay-timezone", "x_delay_timezone") if name in given), None)
    return zone if isinstance(zone, str) else None


def _local(due: int, zone: str | None) -> str:
    from datetime import datetime

    from ...core.cron import parse_zone

    return "" if zone is None else f"{datetime.fromtimestamp(due // 1000, parse_zone(zone)).isoformat()}  "


def _note(found: Explanation, given: dict[str, Value]) -> str:
    """What somebody overlooked who expected a delay."""
    import difflib

    from ...core.headers import CONTROL_NAMES, DELAY_NAMES

    if found.verdict != "pass_through" or any(name.encode() in DELAY_NAMES for name in given):
        return ""
    known = {name.decode().lower(): name.decode() for name in sorted(CONTROL_NAMES, reverse=True)}
    meant = [
        known[close]
        for name in given
        if name.encode() not in CONTROL_NAMES
        for close in difflib.get_close_matches(name.lower(), known, 1, 0.8)
    ]
    question = f"; did you mean {' and '.join(f'`{name}`' for name in meant)}? Names are case-sensitive" if meant else ""
    return f"no delay header here{question}"


def _path(hops: tuple[Hops, ...], rest: int) -> str:
    """The hops to the first delivery, where messages wait in level queues."""
    from .tables import duration

    if not hops and not rest:
        return "at once"
    parts = [f"{duration(each.level)} x {each.times}" if each.times > 1 else duration(each.level) for each in hops]
    total = sum(each.times for each in hops)
    return " + ".join([*parts, *([f"{duration(rest)} in memory"] if rest else [])]) + f" ({total} hop{'s' * (total != 1)})"


def _from(now: int, due: int) -> str:
    from .tables import duration

    return f"in {duration(due - now)}" if due > now else f"at once, {duration(now - due)} late"


@commands.command(epilog="Example: delaybridge send --address /exchanges/orders/eu -H x-delay=5s hello")
def send(
    body: Annotated[str, typer.Argument(metavar="BODY|-", help="The body; `-` reads it from standard input.")],
    route: Annotated[str | None, typer.Option(metavar="NAME", help="The route; may be left out if there is only one.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", metavar="HEADER", help=_HEADER_HELP)] = None,
    address: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where a producer would send it [default: the route's source itself]")
    ] = "",
    message_property: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="HEADER", help="An AMQP property, in the same form: content_type=text/plain, priority:=3."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Send it even if the bridge would dead-letter it.")] = False,
    config: ConfigOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
) -> None:
    """Send a message, as a producer would. Returns when the broker has confirmed it; what the bridge would dead-letter is not sent (exit status 1)."""
    request: dict[str, Any] = {"headers": _headers(header or []), "properties": _headers(message_property or []), **_body(body)}
    chosen = {"route": route, "address": address, "force": force}
    connect(config, url, token_file).send(request | {name: value for name, value in chosen.items() if value})
    typer.echo("sent")


def _body(text: str) -> dict[str, str]:
    raw = sys.stdin.buffer.read() if text == "-" else text.encode(errors="surrogateescape")
    try:
        return {"body": raw.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(raw).decode()}
