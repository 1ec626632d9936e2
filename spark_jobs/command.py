"""What all commands of the audit have around their job: a session, progress on a terminal, one line where they cannot say, and standard output."""

from __future__ import annotations

import io
import logging
import os
import sys
import traceback
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from .columns import UnusableInput
from .reporting import terminal
from .session import readable_errors, session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from .reconciling.audit import Say

_Told = TypeVar("_Told")


def told_by(job: Callable[[SparkSession, Say], _Told], *, kafka: bool, conf: Sequence[str]) -> _Told | None:
    """What a job tells; None, and a line on standard error, where its input cannot be read, its output not be written, or Ctrl-C ended it."""
    errors = Console(stderr=True)
    if sys.stdout is None:  # it was closed: what is printed must fail, and no other file become standard output
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    for stream in (sys.stdout, sys.stderr):  # an id that the terminal has no letters for is no reason to end
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    logging.getLogger().addHandler(logging.NullHandler())  # where Java dies, py4j prints what we tell in a sentence
    try:
        with readable_errors(), session(kafka=kafka, conf=conf) as spark, terminal.progress(spark, errors) as say:
            return job(spark, say)
    except (UnusableInput, OSError) as error:
        errors.print(f"cannot say: {error}", markup=False, highlight=False, soft_wrap=True)
        _leave()
        return None
    except KeyboardInterrupt:
        errors.print("cannot say: interrupted")
        return None
    except Exception:  # noqa: BLE001 - a fault of ours, with its traceback: Python itself would end with 1, which says that something is wrong with the messages
        errors.print(f"cannot say: the audit itself failed\n{traceback.format_exc()}", markup=False, highlight=False, soft_wrap=True)
        return None


def printed(text: str) -> bool:
    """Whether all of a text got to standard output. Where it did not, a line on standard error, but where who reads it has gone: a pipe to `head`."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"cannot say: standard output: {error.strerror}\n")
        _leave()
        return False
    return True


def _leave() -> None:
    """What standard output did not take, Python would try once more at the end, and make 120 of the exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
