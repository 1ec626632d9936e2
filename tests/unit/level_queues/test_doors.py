"""How messages enter the level queues: what is told of them, and when."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from brokers.common import wait_until

from delaybridge.adapters.base import BackOff, Confirm, NotConnected, Outgoing, Rejected
from delaybridge.bridge.level_queues import doors as module
from delaybridge.bridge.level_queues.doors import Doors
from delaybridge.bridge.level_queues.publisher import Publisher
from delaybridge.bridge.metrics import Metrics
from delaybridge.core.message import Message
from delaybridge.core.reasons import Reason
from delaybridge.core.store import SourceProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from delaybridge.bridge.level_queues.publisher import Item

CAME = SourceProgress("exact", [b"t"])
ITEMS = [("level.1s", Message(b"a")), ("level.5s", Message(b"b"))]


class Journal:
    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def tell(self, told: Sequence[Any], now: int, came: SourceProgress | None = None) -> None:
        self.told.append((list(told), now, came))


class Levels:
    """Takes everything at once, before anything is told of it."""

    def __init__(self, journal: Journal) -> None:
        self.taken: list[str] = []
        self._journal = journal
        self.sought = False

    def seek_missing(self) -> None:
        self.sought = True

    def submit(self, items: Sequence[Item]) -> None:
        assert self._journal.told == []
        self.taken += [item.address for item in items]
        for item in items:
            item.landed()


class Topic:
    """A source whose batches are forgotten together with their entry; `works`: or whose broker goes away meanwhile."""

    def __init__(self, *, works: bool = True) -> None:
        self.published: list[str] = []
        self.in_doubt: Callable[[], None] | None = None
        self._works = works

    def publish(self, messages: Sequence[tuple[str, Message]], entered: Callable[[], None]) -> None:
        self.published += [address for address, _ in messages]
        if not self._works:
            self.in_doubt = entered
            raise NotConnected("gone")
        entered()


@pytest.fixture
def journal() -> Journal:
    return Journal()


def doors(journal: Journal, topic: Topic | None = None) -> tuple[Doors, Levels]:
    levels = Levels(journal)
    made = Doors(levels, journal, {"exact", "joined"})
    if topic is not None:
        made.join("joined", topic)  # type: ignore[arg-type]
    return made, levels


@pytest.mark.parametrize(("route", "remembered"), [("exact", True), ("alike", False)])
def test_rows_are_told_and_exact_tokens_remembered_once_the_levels_have_confirmed(journal: Journal, route: str, remembered: bool) -> None:
    made, levels = doors(journal)
    came = SourceProgress(route, [b"1", b"2"])
    made.enter(ITEMS, ["row"], 7, came)  # type: ignore[list-item]
    assert levels.taken == ["level.1s", "level.5s"]
    assert journal.told == [(["row"], 7, came if remembered else None)]


def test_a_joined_batch_enters_through_its_source_and_its_tokens_are_not_needed(journal: Journal) -> None:
    topic = Topic()
    made, levels = doors(journal, topic)
    made.enter(ITEMS, ["row"], 7, SourceProgress("joined", [b"1", b"2"]))  # type: ignore[list-item]
    assert (topic.published, levels.taken) == (["level.1s", "level.5s"], [])
    assert journal.told == [(["row"], 7, None)]


def test_of_a_joined_batch_nothing_is_told_while_it_is_in_doubt(journal: Journal) -> None:
    topic = Topic(works=False)
    made, _ = doors(journal, topic)
    with pytest.raises(NotConnected):
        made.enter(ITEMS, ["row"], 7, SourceProgress("joined", [b"1", b"2"]))  # type: ignore[list-item]
    assert journal.told == []
    assert topic.in_doubt is not None
    topic.in_doubt()  # as the next connection finds
    assert journal.told == [(["row"], 7, None)]


def test_of_a_joined_batch_that_becomes_nothing_rows_are_told_at_once(journal: Journal) -> None:
    topic = Topic()
    made, _ = doors(journal, topic)
    made.enter([], ["row"], 7, SourceProgress("joined", [b"1"]))  # type: ignore[list-item]
    assert (topic.published, journal.told) == ([], [(["row"], 7, None)])


@pytest.mark.parametrize("reason", [Reason.UNROUTABLE, Reason.REFUSED_BY_BROKER])
def test_a_level_that_a_joined_batch_finds_missing_is_made_again(journal: Journal, reason: Reason, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()
    made, levels = doors(journal, topic)

    def refused(*_: object) -> None:
        raise NotConnected("not taken") from BackOff(reason, "no such topic")

    monkeypatch.setattr(topic, "publish", refused)
    with pytest.raises(NotConnected):
        made.enter(ITEMS, ["row"], 7, SourceProgress("joined", [b"1"]))  # type: ignore[list-item]

    assert levels.sought == (reason == Reason.UNROUTABLE)


class Picky:
    """A sink that takes everything but one body."""

    def __init__(self, refused: bytes) -> None:
        self.refused = refused
        self.taken: Counter[bytes] = Counter()
        self.refusals = 0

    def connect(self, confirm: Confirm) -> None:
        self._confirm = confirm

    def publish(self, messages: Sequence[Outgoing]) -> None:
        for outgoing in messages:
            body = outgoing.message.body or b""
            refused = body == self.refused
            self.refusals += refused
            self.taken[body] += not refused
            self._confirm([(outgoing.tag, Rejected(Reason.TOO_LARGE, "5 MB") if refused else None)])

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def picky() -> Picky:
    return Picky(b"250")


@pytest.fixture
def publisher(picky: Picky) -> Iterator[Publisher]:
    worker = Publisher("rabbit", picky, Metrics("0"), lambda *_: None)
    worker.start()
    yield worker
    worker.stop()
    assert worker.join(10)


class Entering:
    """500 messages on their way in, as an intake drives them."""

    def __init__(self, made: Doors) -> None:
        self.ended: list[NotConnected | None] = []
        self._doors = made
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        batch = [("level.1h", Message(b"%d" % number)) for number in range(500)]
        try:
            self._doors.enter(batch, ["row"], 7, CAME)  # type: ignore[list-item]
        except NotConnected as error:
            self.ended.append(error)
        else:
            self.ended.append(None)

    def wait(self) -> NotConnected | None:
        wait_until(lambda: bool(self.ended), "the end of it")
        return self.ended[0]


def test_what_is_refused_for_long_keeps_its_batch_waiting_and_nothing_of_that_enters_twice(
    journal: Journal, publisher: Publisher, picky: Picky
) -> None:
    entering = Entering(Doors(publisher, journal, {"exact"}))
    wait_until(lambda: picky.refusals >= 3, "some refusals")
    assert (entering.ended, journal.told) == ([], []), "nothing of it may be acknowledged yet"
    picky.refused = b"none"

    assert entering.wait() is None
    assert picky.taken == Counter({b"%d" % number: 1 for number in range(500)})
    assert journal.told == [(["row"], 7, CAME)]


def test_a_stop_ends_the_wait_and_nothing_is_told(
    journal: Journal, publisher: Publisher, picky: Picky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE", 0.0)
    made = Doors(publisher, journal, {"exact"})
    entering = Entering(made)
    wait_until(lambda: picky.refusals >= 2, "a second refusal, which comes after all others are taken")
    made.shut()

    assert str(entering.wait()) == "the level queues took 499 of 500 messages before the bridge stopped"
    assert journal.told == []
    wait_until(lambda: not publisher._open, "the end of a try that had begun")
    picky.refused = b"none"
    publisher.stop()
    assert publisher.join(10)
    assert picky.taken[b"250"] == 0, "nobody wants it any more: its source gives it again"


def test_what_the_broker_confirms_soon_after_a_stop_has_entered(
    journal: Journal, publisher: Publisher, picky: Picky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE", 60.0)  # "soon" on a machine under load
    made = Doors(publisher, journal, {"exact"})
    entering = Entering(made)
    wait_until(lambda: picky.refusals >= 1, "a refusal")
    made.shut()
    picky.refused = b"none"

    assert entering.wait() is None
    assert len(journal.told) == 1
