"""The audit on a cluster's terms: spark-submit, the built wheel, and a Python that has never heard of delaybridge."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from spark.conftest import CONF
from spark.java import needs_java
from spark.ledgers import T0, Bridge

pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[3]
PACKAGED = ("adapters", "bridge", "core", "spark_jobs")


def _wheel(folder: Path) -> Path:
    """Built from a copy, so that what lies about in the repository is not in it."""
    source = folder / "source"
    for name in PACKAGED:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "py.typed", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", folder, source], check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def _python(folder: Path) -> Path:
    """With everything that is installed here but delaybridge: paths that a .pth file names are not searched for others."""
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    python = folder / "bin" / "python"
    assert subprocess.run([python, "-c", "import msgspec, pyspark; import delaybridge"], capture_output=True, check=False).returncode == 1
    return python


def _driver() -> str:
    """As the document has it."""
    found = re.search(r"echo '(.*)' > audit\.py", (ROOT / "docs" / "audit.md").read_text())
    assert found
    return found[1]


@needs_java
def test_spark_submit_runs_the_audit_from_the_wheel_as_the_document_says(tmp_path: Path) -> None:
    bridge, wheel, python = Bridge(), _wheel(tmp_path), _python(tmp_path / "python")
    bridge.both("fine", T0)
    bridge.scheduled("lost", T0 + 1)
    bridge.quiet()
    (tmp_path / "audit.py").write_text(_driver())

    command: list[str | Path] = [Path(sys.executable).with_name("spark-submit"), *CONF, "--py-files", wheel, "audit.py"]
    inputs = ["--ledger", bridge.write(tmp_path / "ledger"), "--since", "2025-06-15", "--until", "2025-06-16", "--all-ended", "--json"]
    environment = os.environ | {"PYSPARK_PYTHON": str(python)}
    done = subprocess.run([*command, *inputs], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=200)

    assert done.returncode == 1, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert [(one["finding"], one["id"]) for one in told["worst"]] == [("missing", "lost")]
    assert Path(told["html"].removeprefix("file:")).exists()
