"""Signals that come while the bridge starts."""

from __future__ import annotations

import signal
import sys

import pytest

from delaybridge.bridge import command as console_script
from delaybridge.bridge.signals import SIGNALS, handled, held_back


def blocked() -> set[int]:
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_comes_too_early_is_told_once_it_can_be_handled(number: signal.Signals) -> None:
    told: list[int] = []
    with held_back():
        signal.raise_signal(number)
        with handled(lambda came, _: told.append(came)):
            signal.raise_signal(number)

    assert told == [number, number]


@pytest.mark.parametrize(("command", "waits"), [("run", True), ("status", False)])
def test_signals_to_a_bridge_wait_from_before_its_commands_are_imported(monkeypatch: pytest.MonkeyPatch, command: str, waits: bool) -> None:
    seen: list[set[int]] = []
    monkeypatch.setattr(sys, "argv", ["delaybridge", command])
    monkeypatch.setattr("delaybridge.bridge.cli.main", lambda: seen.append(blocked()))
    console_script.main()
    assert [set(SIGNALS) <= mask for mask in seen] == [waits]
    assert not blocked() & set(SIGNALS)


def test_afterwards_signals_do_what_they_did_before() -> None:
    handlers, mask = [signal.getsignal(number) for number in SIGNALS], blocked()
    with held_back(), handled(lambda *_: None):
        pass

    assert ([signal.getsignal(number) for number in SIGNALS], blocked()) == (handlers, mask)
