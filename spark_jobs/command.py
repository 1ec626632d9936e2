"""What all commands of the audit have around their job: a session, progress on a terminal, and one line where they cannot say."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from . import terminal
from .columns import UnusableInput
from .session import readable_errors, session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from .audit import Say

_Told = TypeVar("_Told")


def told_by(job: Callable[[SparkSession, Say], _Told], *, kafka: bool, conf: Sequence[str]) -> _Told | None:
    """What a job tells; None, and a line on standard error, where its input cannot be read or its output not be written."""
    errors = Console(stderr=True)
    logging.getLogger().addHandler(logging.NullHandler())  # where Java dies, py4j prints what we tell in a sentence
    try:
        with readable_errors(), session(kafka=kafka, conf=conf) as spark, terminal.progress(spark, errors) as say:
            return job(spark, say)
    except (UnusableInput, OSError) as error:
        errors.print(f"cannot say: {error}", markup=False, highlight=False, soft_wrap=True)
        return None
