"""The bridge in the place of a broker's scheduler: what it shows and withdraws, and that nothing of another broker's is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contract.stores import T0, record, take
from msgspec.structs import replace

from delaybridge.adapters.base import NotConnected, Rejected
from delaybridge.adapters.scheduler_requests import Browse, ManagementMessage, Remove, RemoveAll, Unclear
from delaybridge.bridge import answers
from delaybridge.bridge.engine import Engine
from delaybridge.bridge.scheduler_requests import PORTION, Manager
from delaybridge.core.reasons import Reason
from delaybridge.core.store import Pending, Put, Query, Record, Settled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Desk:
    """Keeps the answers; `refusal` is raised where it is set, after the first portion."""

    def __init__(self) -> None:
        self.portions: list[list[str]] = []
        self.refusal: Exception | None = None

    def answer(self, to: str, pages: Iterable[Sequence[Record]]) -> None:
        assert to == "/queue/r"
        for page in pages:
            self.portions.append([one.id for one in page])
            if self.refusal is not None:
                raise self.refusal

    @property
    def shown(self) -> list[str]:
        return [one for portion in self.portions for one in portion]


def put(engine: Engine, *ids: str, broker: str = "amq", first: int = T0 + 1000) -> None:
    """Due one after the other, a second apart."""
    kept = [replace(record(due=first + 1000 * number, chosen_id=each), source_broker=broker) for number, each in enumerate(ids)]
    engine.store.put([Put(one) for one in kept], T0)


def pending(engine: Engine) -> list[str]:
    found: list[str] = []
    page = engine.store.list(Query(), 1000)
    found += [one.record.id for one in page.items]
    return found


def do(engine: Engine, request: Browse | Remove | RemoveAll | Unclear, *, stopping: bool = False) -> tuple[Desk, list[str]]:
    desk, acked = Desk(), list[str]()
    manager = Manager("amq", engine.store, engine.answers.cancel, lambda: T0, lambda: stopping)
    manager.do(ManagementMessage(request, lambda: acked.append("ack")), desk.answer)
    return desk, acked


def test_browse_shows_what_came_from_that_broker_in_order_of_due_time(engine: Engine) -> None:
    put(engine, "b", first=T0 + 5000)
    put(engine, "a")
    put(engine, "other", broker="rabbit")
    desk, acked = do(engine, Browse("/queue/r"))
    assert (desk.shown, acked) == (["a", "b"], ["ack"])


def test_browse_shows_a_window_whose_ends_belong_to_it(engine: Engine) -> None:
    put(engine, "a", "b", "c", "d")
    assert do(engine, Browse("/queue/r", T0 + 2000, T0 + 3000))[0].shown == ["b", "c"]
    assert do(engine, Browse("/queue/r", T0 + 3000, 2**63 - 1))[0].shown == ["c", "d"]


def test_a_large_backlog_is_shown_in_portions(engine: Engine) -> None:
    ids = [f"{number:04}" for number in range(3 * PORTION + 1)]
    put(engine, *ids)
    desk, _ = do(engine, Browse("/queue/r"))
    assert desk.shown == ids
    assert max(map(len, desk.portions)) <= PORTION


def test_where_nobody_takes_the_answer_the_request_is_done_with(engine: Engine) -> None:
    put(engine, "a")
    acked: list[str] = []
    desk = Desk()
    desk.refusal = Rejected(Reason.REJECTED_BY_BROKER, "the queue is gone")
    Manager("amq", engine.store, engine.answers.cancel, lambda: T0, lambda: False).do(
        ManagementMessage(Browse("/queue/r"), lambda: acked.append("ack")), desk.answer
    )
    assert acked == ["ack"]


def test_a_request_whose_answer_was_interrupted_comes_again(engine: Engine) -> None:
    put(engine, "a")
    desk = Desk()
    desk.refusal = NotConnected("gone")
    with pytest.raises(NotConnected):
        Manager("amq", engine.store, engine.answers.cancel, lambda: T0, lambda: False).do(
            ManagementMessage(Browse("/queue/r"), pytest.fail), desk.answer
        )


def test_remove_withdraws_one_and_only_of_that_broker(engine: Engine) -> None:
    put(engine, "a", "b")
    put(engine, "other", broker="rabbit")
    for each in ("a", "other", "never heard of"):
        assert do(engine, Remove(each))[1] == ["ack"]
    assert sorted(pending(engine)) == ["b", "other"]
    assert engine.store.counts().events["cancelled"] == 1


def test_remove_of_an_unknown_job_cancels_nothing_that_comes_later(engine: Engine) -> None:
    do(engine, Remove("later"))
    put(engine, "later")
    assert isinstance(engine.store.find("later"), Pending)


def test_remove_all_withdraws_a_window_and_only_of_that_broker(engine: Engine) -> None:
    put(engine, "a", "b", "c", "d")
    put(engine, "other", broker="rabbit", first=T0 + 2500)
    do(engine, RemoveAll(T0 + 2000, T0 + 3000))
    assert pending(engine) == ["a", "other", "d"]


def test_remove_all_withdraws_a_large_backlog(engine: Engine) -> None:
    put(engine, *(f"{number:04}" for number in range(3 * PORTION + 1)))
    put(engine, "other", broker="rabbit")
    assert do(engine, RemoveAll())[1] == ["ack"]
    assert pending(engine) == ["other"]
    assert engine.store.counts().events["cancelled"] == 3 * PORTION + 1


def test_what_waits_for_its_destination_without_a_delay_is_neither_shown_nor_withdrawn(engine: Engine) -> None:
    put(engine, "scheduled")
    engine.store.put([Put(replace(record(due=T0, chosen_id="undelayed", kind="pass_through"), source_broker="amq"))], T0)
    assert do(engine, Browse("/queue/r"))[0].shown == ["scheduled"]
    for request in (Remove("undelayed"), RemoveAll()):
        do(engine, request)
    assert pending(engine) == ["undelayed"]


def test_a_series_ends_that_was_removed_while_an_occurrence_of_it_was_being_published(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "PATIENCE", 0.05)
    engine.store.put([Put(replace(record(due=T0, chosen_id="series", every=1000), source_broker="amq"))], T0)
    (due,) = take(engine.store)

    do(engine, Remove("series"))

    following = replace(due.record, schedule=replace(due.record.schedule, due=T0 + 1000, occurrence=2))
    engine.store.settle([Settled(due.key, "delivered", T0, next=following)], T0)
    assert pending(engine) == []


def test_what_is_unclear_changes_nothing_and_is_done_with(engine: Engine) -> None:
    put(engine, "a")
    assert do(engine, Unclear("nothing to do"))[1] == ["ack"]
    assert pending(engine) == ["a"]


def test_at_the_daemons_end_a_request_is_left_to_the_next_run(engine: Engine) -> None:
    put(engine, "a")
    assert do(engine, RemoveAll(), stopping=True)[1] == []
    assert pending(engine) == ["a"]
