"""What is passed on from a level, and comes again because its broker has not heard of that: it goes no further."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unit.level_queues.test_passage import STUCK, Bench, Shared

from delaybridge.bridge.level_queues.lately import Lately
from delaybridge.bridge.level_queues.passage import MOMENT
from delaybridge.core.message import Message

if TYPE_CHECKING:
    from delaybridge.bridge.level_queues.passage import Finish, Taken


def comes_again(bench: Bench, *bodies: bytes) -> None:
    """Over a new connection."""
    bench.passage.close()
    bench.passage.connect()
    bench.source.acks.clear()
    bench.source.again = True
    bench.gets(*bodies)


def test_what_waits_for_its_batch_as_the_connection_is_lost_is_acknowledged_over_the_next_one() -> None:
    bench = Bench()
    bench.gets(b"a", STUCK, b"b")

    comes_again(bench, b"a", STUCK, b"b")

    assert [body for body, _ in bench.onward.left] == [b"a", STUCK, b"b", STUCK]
    bench.onward.stuck[-1]()
    bench.steps()
    assert bench.source.acks == [None]


def test_so_is_that_of_which_the_broker_did_not_hear_the_acknowledgement_however_often() -> None:
    bench = Bench()
    bench.gets(b"a")
    for _ in range(3):
        comes_again(bench, b"a", b"new")

    assert [body for body, _ in bench.onward.left] == [b"a", b"new"]
    assert bench.source.acks == [None]


def test_what_was_acknowledged_alone_is_known_again_as_well() -> None:
    bench = Bench()
    bench.gets(b"a", STUCK)
    bench.now += MOMENT
    bench.steps()
    assert bench.source.acks == [(0,)]

    comes_again(bench, b"a")

    assert bench.onward.landed == 1


def test_what_was_not_passed_on_by_then_goes_its_way() -> None:
    """Also if it is afterwards: whether that was its end, or it was let go of, is not told apart."""
    bench = Bench()
    bench.gets(STUCK)
    bench.passage.close()
    bench.onward.stuck[0]()

    comes_again(bench, STUCK)

    assert len(bench.onward.left) == 2


def test_what_its_broker_gives_for_the_first_time_is_no_redelivery_whatever_it_looks_like() -> None:
    bench = Bench()
    bench.gets(b"a")
    bench.gets(b"a")

    assert bench.onward.landed == 2


def test_what_another_bridge_may_have_had_meanwhile_goes_its_way() -> None:
    """A message that went to another bridge has come to its end here, too, and that one may have been killed."""
    bench = Bench(Shared())
    bench.gets(b"a")

    comes_again(bench, b"a")

    assert bench.onward.landed == 2


def test_what_no_bridge_put_there_is_set_aside_as_often_as_it_comes() -> None:
    """Nothing tells it from another one that is equal; an envelope has a number of its own."""
    bench, aside = Bench(), []

    def setting_aside(message: Message, taken: Taken, done: Finish) -> None:
        del taken
        aside.append(message)
        done()

    bench.onward.aside = setting_aside  # type: ignore[method-assign]  # each message of the bench has an envelope
    bench.source.batches.append([Message(b"x")])
    bench.steps()
    bench.source.batches.append([Message(b"x")])
    comes_again(bench)

    assert len(aside) == 2


def test_the_latest_are_known_and_not_all_that_ever_were() -> None:
    least = 500
    lately, names = Lately[int](least), range(5 * least)
    for at in range(0, len(names), 100):
        lately.add(names[at : at + 100])
        known = sum(name in lately for name in names[: at + 100])
        assert min(at + 100, least) <= known <= 2 * least
        assert all(name in lately for name in names[max(0, at + 100 - least) : at + 100])
