"""Signals that come while the bridge starts."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from fake_daemon import call

from delaybridge.bridge.config import file as configuration_file
from delaybridge.bridge.config.file import ConfigError
from delaybridge.bridge.signals import SIGNALS, handled, held_back

if TYPE_CHECKING:
    from pathlib import Path


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


def test_afterwards_signals_do_what_they_did_before() -> None:
    handlers, mask = [signal.getsignal(number) for number in SIGNALS], blocked()
    with held_back(), handled(lambda *_: None):
        pass

    assert ([signal.getsignal(number) for number in SIGNALS], blocked()) == (handlers, mask)


def test_run_holds_signals_back_before_it_reads_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[int]] = []

    def load(_: Path | None) -> None:
        seen.append(blocked())
        raise ConfigError(["enough"])

    monkeypatch.setattr(configuration_file, "load", load)

    assert call("run").exit_code == 78
    assert set(SIGNALS) <= seen[0]
    assert not set(SIGNALS) & blocked()
