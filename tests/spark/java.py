"""Tests that start Java."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="there is no `java`")


@contextmanager
def serving(conf: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """One Java for several commands, one after the other: the environment that leads them to it, as spark-submit leads a program to its own.

    Else each of them starts one, and Spark anew in it: most of what a small audit costs.
    """
    from pyspark import SparkConf  # noqa: PLC0415 - not everybody has it
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - as above

    gateway: Any = launch_gateway(SparkConf(loadDefaults=False).setAll(list(conf.items())))  # type: ignore[no-untyped-call]  # PySpark annotates not all
    try:
        known = gateway.gateway_parameters
        yield os.environ | {"PYSPARK_GATEWAY_PORT": str(known.port), "PYSPARK_GATEWAY_SECRET": known.auth_token}
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
