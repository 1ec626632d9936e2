"""Commands about delaybridge itself."""

# ruff: noqa: PLC0415 - commands import late, so that --help is quick

from __future__ import annotations

from typing import Annotated

import typer

from .common import Output, OutputOption

commands = typer.Typer()
_INSTRUMENTED = ("confluent-kafka", "aiokafka")
"""Producers' clients that `delaybridge-instrument` diverts, and the bridge itself does without."""
_MISSING = "not installed"


@commands.command(epilog="Example: delaybridge demo")
def demo(
    faults: Annotated[
        bool,
        typer.Option("--faults", help="Lose, double and delay a few messages behind the bridge's back; the audit must name exactly these."),
    ] = False,
) -> None:
    """Run the bridge on an in-process broker and audit that run, in about a minute. Exit status 1 if anything does not add up."""
    from ..demo import demo as run_demo

    raise typer.Exit(run_demo(faults=faults))


@commands.command(epilog="Example: delaybridge version --output json")
def version(output: OutputOption = Output.TABLE) -> None:
    """Show the versions of delaybridge, Python, the platform, the store's engine and the client libraries."""
    import platform
    from importlib import metadata

    from .tables import show_one

    versions = {"delaybridge": metadata.version("delaybridge"), "python": platform.python_version(), "platform": platform.platform()}
    versions |= {name: _installed(name) for name in ("rocksdict", *_optional())}
    versions |= {name: found for name in _INSTRUMENTED if (found := _installed(name)) != _MISSING}
    show_one(versions, versions, output)


def _optional() -> list[str]:
    """The libraries of the extras, but for those of development."""
    import re
    from importlib import metadata

    wanted = [text for text in metadata.requires("delaybridge") or () if "extra ==" in text and not re.search("extra == .dev", text)]
    return sorted({re.split(r"[^\w.-]", text)[0] for text in wanted})


def _installed(name: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return _MISSING
