"""A partition has lost its end, as by an unclean election, and others have its offsets now: what came instead is read, whoever read what was lost."""

from __future__ import annotations

import contextlib
import shutil

import pytest
from brokers.common import wait_until

from contract.kafka_user import Intake, User, private
from delaybridge.adapters.kafka.wire.records import offset_of


@pytest.mark.parametrize("connected", [True, False], ids=["while the source is connected", "while it is away"])
def test_what_took_the_place_of_lost_records_is_read(*, connected: bool) -> None:
    with private() as broker, contextlib.closing(User(broker.url)) as user:
        log, copy = broker.data / f"{user.topic}-0", broker.directory / "copy"
        source = user.source()
        intake = Intake(source)
        stored: list[bytes] = []

        def send(text: str, count: int) -> None:
            stored.extend(intake.stored[len(stored) :])
            user.send(*[text.encode()] * count)

        def taken(offsets: range) -> None:
            wait_until(lambda: [*map(offset_of, intake.stored[len(stored) :])] == list(offsets), f"offsets {offsets}", 60)

        send("kept", 10)
        taken(range(10))
        broker.kill()
        shutil.copytree(log, copy)
        broker.start()
        send("lost", 10)
        taken(range(10, 20))
        if not connected:
            intake.stop()
            source.close()
        broker.kill()
        shutil.rmtree(log)
        shutil.copytree(copy, log)
        broker.start()
        send("new", 15)
        if not connected:
            source.connect()
            stored.clear()
            intake = Intake(source)
        taken(range(10, 25))
        intake.stop()
