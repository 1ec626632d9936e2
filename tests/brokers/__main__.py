"""`make brokers` and `make brokers-stop`: all three brokers on the loopback interface, for a person to play with.

    python -m brokers start    starts them in the background, at their usual ports where those are free, and says where they are
    python -m brokers stop     stops them; they keep nothing
    python -m brokers missing  names those that can neither be reached nor started here, for install.sh

All may be said again. A broker that cannot be had is named, with the reason, and left out.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TextIO

from brokers import people
from brokers.common import wait_until

STATE = Path(__file__).parents[2] / ".brokers"
LOCK, LOG, CONFIGURATION = STATE / "lock", STATE / "log", STATE / "delaybridge.yaml"
START_TIMEOUT, STOP_TIMEOUT = 180.0, 60.0


def lock() -> TextIO | None:
    """The lock that the serving process holds as long as it lives, with its number inside; None where another one has it."""
    STATE.mkdir(exist_ok=True)
    file = LOCK.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def serving() -> bool:
    """Whether the brokers run, or start, or stop."""
    held = lock()
    if held is not None:
        held.close()
    return held is None


def start() -> str:
    """Start the brokers, unless they run. Returns what to tell; exits where there is none."""
    if not serving():
        CONFIGURATION.unlink(missing_ok=True)
        with LOG.open("w") as log:
            server = subprocess.Popen(
                [sys.executable, "-m", "brokers", "serve"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(lambda: CONFIGURATION.exists() or server.poll() is not None, f"the brokers ({LOG})", START_TIMEOUT)
    else:
        wait_until(lambda: CONFIGURATION.exists() or not serving(), f"the brokers ({LOG})", START_TIMEOUT)
    if not CONFIGURATION.exists():
        sys.exit(LOG.read_text())
    return f"{LOG.read_text()}\n{people.told(CONFIGURATION)}"


def stop() -> str:
    """Stop the brokers, if they run, and wait until they have stopped. Returns what to tell."""
    if not serving():
        return "No brokers are running."
    os.kill(int(LOCK.read_text()), signal.SIGTERM)
    wait_until(lambda: not serving(), "the brokers to stop", STOP_TIMEOUT)
    return "The brokers have stopped."


def serve() -> None:
    """Run the brokers until SIGTERM; CONFIGURATION is there as long as they can be used."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    held = lock()
    if held is None:
        return
    with held, ExitStack() as stack:
        held.truncate(0)
        held.write(str(os.getpid()))
        held.flush()
        configuration = people.run(stack)
        whole = CONFIGURATION.with_suffix(".new")
        whole.write_text(configuration)
        whole.replace(CONFIGURATION)
        stack.callback(CONFIGURATION.unlink, missing_ok=True)
        with suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    commands = {"start": start, "stop": stop, "serve": serve, "missing": people.missing}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    if told := commands[sys.argv[1]]():
        print(told)
