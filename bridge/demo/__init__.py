"""`delaybridge demo`: the whole bridge on the embedded broker, some 1,800 messages in twenty seconds, the sums at the end, and the audit of them.

Everything is the real thing: engine, store on disk, ledger files, Spark. What is counted is what arrived at the destination queue, not what the
bridge believes.

    workload     what is sent
    arrivals     who reads the destinations; `faults`: what may happen on the way there
    run          one run, watched; `account`: what it knows; `tables`: what is shown of it
    books        whether it adds up
    proof        the audit, in a process of its own
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from ..config import Logs
from ..logs import configure
from . import proof
from .faults import Faults
from .run import Demo


def demo(*, faults: bool = False) -> int:
    """Run the demo in a temporary directory, which stays where the audit's report is in it; returns the exit code.

    `faults` loses, doubles and delays a few messages behind the bridge's back: the audit must name exactly these.
    """
    configure(Logs(level="error"))
    console = Console()
    why_not = proof.unavailable()
    if faults and why_not:
        console.print(f"[red]✗ the faults are there for the audit to find, and it cannot run: {escape(why_not)}", soft_wrap=True)
        return 1
    folder = Path(tempfile.mkdtemp(prefix="delaybridge-demo-"))
    keep = False
    try:
        run = Demo(folder, console, Faults() if faults else None)
        sound = run.run()
        if why_not:
            console.print(f"[yellow]-[/] the audit was left out: {escape(why_not)}", soft_wrap=True)
        elif run.ended:
            audit = proof.prove(folder, run.window, run.planted, console)
            sound, keep = sound and audit.sound, audit.report
        return 0 if sound else 1
    finally:
        shutil.rmtree(folder if not keep else folder / "store")
