"""What the running bridge answers to people, where the store alone does not decide it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.stores import T0, record

from delaybridge.bridge.config import Config
from delaybridge.bridge.engine import Engine
from delaybridge.bridge.metrics import Metrics
from delaybridge.bridge.views import NotPossibleError
from delaybridge.core.store import Refuse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Not started: only its store and its control are at work."""
    made = Engine(Config.model_validate({"store": {"path": tmp_path}}), lambda: T0, Metrics("0.1.0"), lambda *_: None)
    yield made
    made.store.close()


def test_a_refused_message_that_goes_nowhere_is_not_sent_to_nowhere_by_a_retry(engine: Engine) -> None:
    engine.store.put([Refuse(record("a", address="", kind="refused"), "bad_duration", "x-delay: 'soon' is no duration")], T0)

    with pytest.raises(NotPossibleError, match="bad_duration"):
        engine.control.retry_dead_letter(1)

    assert [letter.reason for letter in engine.control.dead_letters(10, 0)] == ["bad_duration"]
    assert engine.store.counts().pending == 0


def test_a_dead_letter_that_has_a_destination_is_scheduled_again(engine: Engine) -> None:
    engine.store.put([Refuse(record("a", address="orders", kind="refused"), "bad_duration", "")], T0)

    assert engine.control.retry_dead_letter(1)
    assert not engine.control.retry_dead_letter(2)
    assert engine.store.counts().pending == 1


def test_a_destination_that_waits_for_resume_has_no_next_try(engine: Engine) -> None:
    (lane,) = engine.lanes.values()
    lane.lane.holds.pause("orders")
    lane.lane.holds.fail("billing", "unroutable", T0)

    (status,) = engine.control.status().lanes
    tries = {held.address: held.retry_at for held in status.held}

    assert tries["orders"] is None
    assert tries["billing"] is not None
    assert tries["billing"] > T0
