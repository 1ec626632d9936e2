"""The audit: Spark jobs in a process of their own, so that the bridge needs no Spark."""

# ruff: noqa: PLC0415 - commands import late, so that --help is quick

from __future__ import annotations

from typing import NoReturn

import typer

from .common import USAGE

commands = typer.Typer(
    no_args_is_help=True, help="Compare what was scheduled with what arrived. Needs `pip install '.[spark]'` in a clone, and Java 17."
)

_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@commands.command(context_settings=_PASSED_ON, add_help_option=False)
def reconcile(context: typer.Context) -> None:
    """Did everything that was scheduled arrive, once, on time? Options: see its own --help. Exit codes: 0 clean, 1 discrepancies, 2 cannot say."""
    _run("reconcile", context.args)


@commands.command(context_settings=_PASSED_ON, add_help_option=False)
def watch(context: typer.Context) -> None:
    """Alert as soon as something due is not delivered. Options: see its own --help. Exit codes with --once: 0 clean, 1 alerts, 2 cannot say."""
    _run("watch", context.args)


@commands.command(context_settings=_PASSED_ON, add_help_option=False)
def forecast(context: typer.Context) -> None:
    """How many deliveries to expect, by destination and minute, from what is pending. Options: see its own --help. Exit codes: 0 ok, 2 cannot say."""
    _run("forecast", context.args)


def _run(job: str, arguments: list[str]) -> NoReturn:
    """Become `delaybridge.spark_jobs.JOB` with these arguments: signals reach it, its exit code is ours. Its help is passed on instead."""
    import importlib.util
    import os
    import subprocess
    import sys

    if importlib.util.find_spec("pyspark") is None:
        typer.echo("the audit needs Spark: pip install '.[spark]' in a clone of delaybridge, and Java 17 or later", err=True)
        raise typer.Exit(USAGE)
    command = [sys.executable, "-m", f"delaybridge.spark_jobs.{job}", *arguments]
    if not {"-h", "--help"} & set(arguments):
        os.execv(command[0], command)  # noqa: S606 - our own module
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - our own module
    typer.echo(done.stdout, nl=False)
    raise typer.Exit(done.returncode)
