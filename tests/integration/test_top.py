"""`delaybridge top` on a terminal, beside a running daemon."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from integration.daemon import COMMAND, Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PATIENCE = 30


class Screen:
    """What a program has drawn on a terminal of its own."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self.drawn = ""

    def wait_for(self, pattern: str) -> None:
        """Read on until the pattern was drawn after what was waited for before."""
        deadline = time.monotonic() + _PATIENCE
        while (found := re.search(pattern, self.drawn)) is None:
            assert time.monotonic() < deadline, f"{pattern} was not drawn: {self.drawn[-4000:]}"
            if select.select([self._terminal], [], [], 0.1)[0]:
                self.drawn += os.read(self._terminal, 65_536).decode()
        self.drawn = self.drawn[found.end() :]


@contextmanager
def top(*options: str) -> Iterator[tuple[subprocess.Popen[bytes], Screen]]:
    """The command on a terminal of 40 lines."""
    ours, its = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    # What is ignored here, as behind `nohup`, a program that is started here would ignore too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen([COMMAND, "top", "--interval", "0.2", *options], stdin=its, stdout=its, stderr=its, env=environment)
    try:
        yield process, Screen(ours)
    finally:
        process.kill()
        process.wait()
        os.close(its)
        os.close(ours)


def test_top_shows_what_happens_in_a_second_survives_a_restart_of_the_daemon_and_ends_by_ctrl_c(tmp_path: Path) -> None:
    with Daemon(tmp_path, {}) as daemon:
        daemon.start()
        with top("--config", str(daemon.file)) as (process, screen):
            screen.wait_for(r"bridge +test \(")
            assert daemon.post("/messages", {"body": "hello", "headers": {"x-delay": 50}}).status_code == 202
            screen.wait_for(r"\d\.\d delivered")
            assert daemon.terminate() == 0
            screen.wait_for("Asking again")
            daemon.start()
            screen.wait_for(r"bridge +test \(")
            process.send_signal(signal.SIGINT)
            assert process.wait(_PATIENCE) == 0


def test_a_top_that_is_told_to_end_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    with Daemon(tmp_path, {}) as daemon:
        daemon.start()
        with top("--config", str(daemon.file)) as (process, screen):
            screen.wait_for(r"bridge +test \(")
            process.terminate()
            screen.wait_for(r"\x1b\[\?25h")  # the cursor
            screen.wait_for(r"\x1b\[\?1049l")  # what stood there before
            assert process.wait(_PATIENCE) == 128 + signal.SIGTERM
