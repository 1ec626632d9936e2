"""`make demo FAULTS=1`: what happens to messages after the ledger is found by the audit, and nothing else is. CI runs `make demo` itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spark.java import needs_java

pytest.importorskip("pyspark")


@needs_java
def test_the_audit_of_the_demo_names_exactly_what_was_lost_doubled_and_delayed_on_purpose() -> None:
    command = Path(sys.executable).with_name("delaybridge")

    done = subprocess.run([command, "demo", "--faults"], capture_output=True, text=True, check=False, timeout=300)
    report = Path(done.stdout.rsplit("Report: ", 1)[-1].strip())
    root = report.parents[2]

    assert done.returncode == 0, done.stdout + done.stderr
    assert "the audit names exactly the 7 messages that were lost, doubled and delayed" in done.stdout
    assert report.stat().st_size > 1000
    assert sorted(entry.name for entry in root.iterdir()) == ["audit", "ledger", "observed"]
    shutil.rmtree(root)
