"""A partition has lost its end, as by an unclean election, and others have its offsets now: what came instead is read, whoever read what was lost."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

import pytest
from brokers.common import wait_until

from contract.kafka_user import Intake, User, private
from contract.test_kafka_levels import Levels, bodies
from delaybridge.adapters.base import NotConnected
from delaybridge.adapters.kafka.wire.records import offset_of
from delaybridge.adapters.levelled import Trimmable

if TYPE_CHECKING:
    from collections.abc import Callable

    from brokers.kafka import Native


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


class Cut:
    """A level whose log loses its end, where all was finished, or all but `held`; `new`: how many messages come afterwards."""

    def __init__(self, broker: Native, new: int, held: str) -> None:
        self._levels = Levels(broker.url, 0, level_partitions=1).apply()
        self._new = new
        self._held = held
        self._log, self._copy = (place / f"{self._levels.levels[0].name}-0" for place in (broker.data, broker.directory))
        self.source = self._levels.source()

    def take(self, *expected: str) -> None:
        """These come, and all but what is held is finished, which comes again over a new connection: a restart may need one."""
        taken: list[str] = []
        while len(taken) < len(expected):
            try:
                batch = self.source.receive(len(expected) - len(taken), 20)
            except NotConnected:
                self.source.connect()
                continue
            assert batch is not None, f"only {taken} came"
            assert batch.ack_some is not None
            found = bodies(batch.messages)
            batch.ack_some([place for place, body in enumerate(found) if body != self._held])
            taken += [body for body in found if body != self._held or body in expected]
        assert taken == [*expected]
        self.waits(bool(self._held))

    def waits(self, count: int) -> None:
        """So much is not finished."""
        wait_until(lambda: self._levels.queues.depths() == [count], f"{count} not to be finished")

    def begin(self) -> None:
        self._levels.put(*these("kept", 10))
        self.take(*these("kept", 10))

    def copy(self) -> None:
        shutil.copytree(self._log, self._copy)

    def go_on(self) -> None:
        self._levels.put(*these("lost", 10))
        self.take(*these("lost", 10))

    def cut(self) -> None:
        shutil.rmtree(self._log)
        shutil.copytree(self._copy, self._log)

    def fill(self) -> None:
        """What is finished is deleted before the level is read on."""
        self._levels.put(*these("new", self._new))
        assert isinstance(self._levels.queues, Trimmable)
        self._levels.queues.trim()
        self.waits(self._new + bool(self._held))

    def end(self) -> None:
        held, self._held = self._held, ""
        self.take(*[held] * bool(held), *these("new", self._new))
        assert self.source.receive(1, 0.5) is None
        self._levels.close()


def these(word: str, count: int) -> list[str]:
    return [f"{word} {number}" for number in range(count)]


@pytest.mark.parametrize("connected", [True, False], ids=["while the source is connected", "while it is away"])
def test_what_took_the_place_of_lost_records_of_a_level_is_read_and_nothing_comes_again(*, connected: bool) -> None:
    with private() as broker:
        cuts = [Cut(broker, new, held) for new in (5, 15) for held in ("", "kept 3")]

        def each(step: Callable[[Cut], object]) -> None:
            for one in cuts:
                step(one)

        each(Cut.begin)
        broker.kill()
        each(Cut.copy)
        broker.start()
        each(Cut.go_on)
        if not connected:
            each(lambda one: one.source.close())
        broker.kill()
        each(Cut.cut)
        broker.start()
        each(Cut.fill)
        if connected:
            for one in cuts:
                with pytest.raises(NotConnected):
                    one.source.receive(1, 30)
        each(lambda one: one.source.connect())
        each(Cut.end)
