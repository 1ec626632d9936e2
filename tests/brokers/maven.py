"""Brokers from Maven Central: the jars that a pom beside this file names, in a cache directory of the user."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from brokers.common import Unavailable

HERE = Path(__file__).parent


def cache() -> Path:
    """Where brokers are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "delaybridge" / "brokers"


def fetch(pom: str, directory: Path, *properties: str) -> None:
    """Put the jars of this pom, with these properties, into `directory`, whole or not at all; Maven verifies their checksums. Raises Unavailable."""
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("there is no `mvn` (apt install maven)")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as temporary:
        target = Path(temporary) / "lib"
        command = [
            maven,
            "-q",
            "-B",
            "-C",
            "-f",
            str(HERE / pom),
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            *(f"-D{each}" for each in properties),
        ]
        done = subprocess.run([*command, f"-DoutputDirectory={target}"], cwd=temporary, check=False, capture_output=True, text=True)
        if done.returncode or not any(target.glob("*.jar")):
            raise Unavailable(f"Maven could not fetch {pom}:\n{(done.stdout + done.stderr)[-2000:]}")
        if not directory.exists():
            target.rename(directory)
