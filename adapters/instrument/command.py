"""`delaybridge-instrument`: runs a command whose Kafka producers divert what carries a delay header."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from importlib.metadata import version
from typing import NoReturn

from . import divert
from .startup import FOLDER, INGRESS, SUFFIX

EPILOG = f"""example:
  delaybridge-instrument python app.py
  delaybridge-instrument gunicorn shop.wsgi
  delaybridge-instrument --ingress delaybridge.in python -m shop.worker

Every Python that the command starts is instrumented as well. The exit status is
the command's own; 126 and 127 say that it cannot be run.
{SUFFIX} and {INGRESS} in the environment
do what --suffix and --ingress do.
"""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Become the command: it keeps this process, its signals and its exit status."""
    options = _parser().parse_args(arguments)
    try:
        divert.Rule(options.suffix, options.ingress)
    except ValueError as error:
        _parser().error(str(error))
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        _parser().error("name the command to run, such as: python app.py")
    _become(command, environment(options.suffix, options.ingress))


def environment(suffix: str, ingress: str) -> dict[str, str]:
    """The environment of this process, in which Python begins with `startup/sitecustomize.py`."""
    before = os.environ.get("PYTHONPATH")
    others = [path for path in before.split(os.pathsep) if path != FOLDER] if before else []  # an empty one is the current folder
    return {**os.environ, SUFFIX: suffix, INGRESS: ingress, "PYTHONPATH": os.pathsep.join([FOLDER, *others])}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="delaybridge-instrument",
        description="Run a command; its Kafka producers (kafka-python, confluent-kafka, aiokafka)\n"
        "send to <topic>.delayed what carries a delay header.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('delaybridge')}")
    suffix, ingress = os.environ.get(SUFFIX) or divert.SUFFIX, os.environ.get(INGRESS, "")
    parser.add_argument("--suffix", default=suffix, help="what the names of ingress topics end with [default: %(default)s]")
    parser.add_argument(
        "--ingress", default=ingress, metavar="TOPIC", help="one ingress topic for all; the header x-delay-to says where a message goes"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the command, with its own options")
    return parser


def _become(command: list[str], environ: dict[str, str]) -> NoReturn:
    _leave_signals_as_they_were()
    try:
        os.execvpe(command[0], command, environ)  # noqa: S606 - the user's own command, and no shell
    except OSError as error:
        print(f"delaybridge-instrument: {command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        raise SystemExit(126 if isinstance(error, PermissionError) else 127) from None


def _leave_signals_as_they_were() -> None:
    """Python ignores these two for itself, and what is ignored stays so in the command: `yes | head -1` in a shell script would fail."""
    for each in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(each, signal.SIG_DFL)
