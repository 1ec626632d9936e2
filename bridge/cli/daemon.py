"""Commands that start the bridge or read its configuration."""

# ruff: noqa: PLC0415 - commands import late, so that --help is quick

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated, Any

import typer

from .common import BAD_CONFIG, ConfigOption, Output, OutputOption

commands = typer.Typer()


@commands.command(epilog="Example: delaybridge run --config /etc/delaybridge/delaybridge.yaml")
def run(config: ConfigOption = None, check: Annotated[bool, typer.Option("--check", help="Check the configuration only.")] = False) -> None:
    """Run the bridge. SIGTERM and SIGINT drain and stop it, a second one stops it at once; SIGHUP reloads the configuration."""
    from ..config import file

    if check:
        typer.echo(file.checked(file.check(config)))
        return
    loaded = file.load(config)
    from ..config.secrets import secrets
    from ..daemon import run as run_daemon
    from ..logs import configure

    configure(loaded.logs, secrets(loaded))
    raise typer.Exit(run_daemon(loaded))


@commands.command(epilog="Example: delaybridge check-config --show delaybridge.yaml")
def check_config(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", readable=False, help="Files to check, each on its own.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    show: Annotated[bool, typer.Option("--show", help="Print the whole configuration as the bridge reads it, secrets masked.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check configuration files. Shows every problem with file and line; exit status 78 if there is any."""
    from ..config.file import find

    paths: list[Path | None] = [*files] if files else [find(config)]
    results = [_checked(path) for path in paths]
    _print(results, output, show=show)
    if not all(result["ok"] for result in results):
        raise typer.Exit(BAD_CONFIG)


def _checked(path: Path | None) -> dict[str, Any]:
    from ..config.file import ConfigError, check, checked
    from ..config.secrets import masked

    try:
        config = check(path)
    except ConfigError as error:
        return {"file": path and str(path), "ok": False, "problems": error.problems, "config": None, "said": ""}
    return {"file": path and str(path), "ok": True, "problems": [], "config": masked(config), "said": checked(config)}


def _print(results: list[dict[str, Any]], output: Output, *, show: bool) -> None:
    from .tables import print_json

    if output is not Output.TABLE:
        left_out = {"said"} if show else {"said", "config"}
        shown = [{key: value for key, value in result.items() if key not in left_out} for result in results]
        print_json(shown, output)
        return
    for result in results:
        for problem in result["problems"]:
            typer.echo(problem, err=True)
        if result["ok"]:
            typer.echo(result["said"])
        if show and result["ok"]:
            import yaml

            typer.echo(yaml.safe_dump(result["config"], sort_keys=False), nl=False)
