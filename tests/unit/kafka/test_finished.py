"""Records of a partition finish in any order; what is committed says which, within what a broker takes, and is read back."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaybridge.adapters.kafka.cluster.groups import Offsets
from delaybridge.adapters.kafka.finished import LIMIT, OUT, SPAN, Finished, finished_behind


def given_out(offsets: range | list[int], base: int = 0, text: str = "") -> Finished:
    one = Finished(base, text)
    for offset in offsets:
        if one.admit(offset):
            one.give(offset)
    return one


def test_what_is_finished_behind_a_committed_offset_is_counted_by_the_text_beside_it() -> None:
    finished = given_out(range(10))
    for offset in (0, 1, 5, 6, 9):
        finished.finish(offset)
    assert (finished.base, finished_behind(finished.text(), 100)) == (2, 3)
    assert [finished_behind(finished.text(), span) for span in (-1, 0, 4, 5, 7)] == [0, 0, 1, 2, 2]
    assert [finished_behind(text, 100) for text in ("", "of topic AAAA", "AAAA")] == [0, 0, 0]


@pytest.mark.parametrize(
    ("place", "waiting"),
    [
        (Offsets(begin=0, committed=4, finished=3, end=10), 3),
        (Offsets(begin=0, committed=-1, finished=0, end=10), 10),
        (Offsets(begin=6, committed=4, finished=3, end=10), 4),  # what is committed is of records that are gone
        (Offsets(begin=0, committed=10, finished=0, end=10), 0),
    ],
)
def test_what_waits_at_a_level_is_what_is_not_finished(place: Offsets, waiting: int) -> None:
    assert place.waiting == waiting


def test_what_finishes_in_order_moves_the_offset_and_needs_no_text() -> None:
    one = given_out(range(10, 15), 10)
    for offset in range(10, 13):
        one.finish(offset)
    assert (one.base, one.text(), one.out) == (13, "", 2)


def test_the_offset_is_that_of_the_first_that_is_not_finished_and_the_text_tells_of_the_others() -> None:
    one = given_out(range(10))
    for offset in (1, 2, 4, 9):
        one.finish(offset)
    assert one.base == 0
    again = Finished(one.base, one.text())
    assert [offset for offset in range(12) if again.admit(offset)] == [0, 3, 5, 6, 7, 8, 10, 11]


def test_a_committed_offset_and_its_text_say_of_each_record_whether_it_is_finished() -> None:
    one = given_out(range(5))
    for offset in (0, 1, 3):
        one.finish(offset)
    committed = Finished(one.base, one.text())
    assert [offset for offset in range(7) if committed.includes(offset)] == [0, 1, 3]


def test_what_would_be_committed_when_more_is_finished_is_told_without_finishing_it() -> None:
    """A transaction commits it, or not."""
    one = given_out(range(5))
    later = one.after({0, 1, 3})
    committed = Finished(later.base, later.text())
    assert [offset for offset in range(6) if committed.admit(offset)] == [2, 4, 5]
    assert (one.base, one.text(), one.out) == (0, "", 5)


def test_what_was_only_fetched_is_not_finished() -> None:
    one = Finished()
    for offset in range(5):
        one.admit(offset)
    one.give(0)
    one.finish(0)
    assert (one.base, one.text()) == (1, "")


def test_offsets_that_no_record_has_are_passed_over() -> None:
    """Markers of transactions, and what was compacted or aborted."""
    one = given_out([0, 2, 7])
    one.finish(0)
    assert one.base == 2
    one.finish(2)
    one.finish(7)
    assert one.base == 8


def test_markers_at_the_end_are_passed_over_when_they_were_read() -> None:
    one = given_out([0, 1])
    one.finish(0)
    one.reach(3)
    assert one.base == 1
    one.finish(1)
    assert (one.base, one.text()) == (3, "")


def test_a_record_that_comes_again_is_neither_given_nor_finished_twice() -> None:
    one = given_out(range(3))
    one.finish(0)
    one.finish(0)
    assert not one.admit(0)
    assert (one.base, one.out) == (1, 2)


def test_a_text_that_is_not_ours_says_nothing() -> None:
    for text in ("hello", "aGVsbG8=", "\u00e4"):
        assert Finished(5, text).admit(5)


def test_what_was_known_is_told_again_before_it_is_fetched_again() -> None:
    first = given_out(range(100))
    for offset in range(50, 100):
        first.finish(offset)
    second = given_out(range(5), first.base, first.text())
    second.finish(0)
    third = Finished(second.base, second.text())
    assert [offset for offset in range(1, 110) if third.admit(offset)] == [*range(1, 50), *range(100, 110)]


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=200), st.integers(0, 1000), st.data())
def test_reading_back_gives_exactly_what_is_not_finished(steps: list[tuple[int, bool]], base: int, data: st.DataObject) -> None:
    offsets, unfinished, at = [], [], base
    for step, done in steps:
        offsets.append(at)
        if not done:
            unfinished.append(at)
        at += step
    one = given_out(offsets, base)
    for offset in set(offsets) - set(unfinished):
        one.finish(offset)
    cut = data.draw(st.integers(0, len(offsets)))
    for _ in range(2):  # a second owner, who has fetched some of it, hands over as well
        one = Finished(one.base, one.text())
        for offset in offsets[:cut]:
            one.admit(offset)
    again = Finished(one.base, one.text())
    assert [offset for offset in offsets if again.admit(offset)] == unfinished


def test_the_places_of_all_that_may_be_out_fit_into_the_text() -> None:
    rng = random.Random(1)
    one = Finished()
    out = sorted(rng.sample(range(SPAN), OUT))
    held = set(out)
    for offset in range(SPAN):
        one.admit(offset)
        one.give(offset)
        if offset not in held:
            one.finish(offset)
    assert (one.out, one.room) == (OUT, 0)
    for offset in range(SPAN, SPAN + 9_000, 3):  # fetched, with the markers of transactions between them, and not given out
        one.admit(offset)
    assert len(one.text()) <= LIMIT


def test_there_is_no_room_while_the_first_is_too_far_behind() -> None:
    one = Finished()
    one.admit(0)
    one.give(0)
    one.admit(SPAN)
    assert one.room == 0
    one.finish(0)
    assert one.room == OUT


@pytest.mark.parametrize(
    ("first", "lost", "comes"),
    [
        (3, True, range(3, 12)),
        (5, True, range(5, 12)),
        (8, True, [5, 7, *range(8, 12)]),
        (9, True, [5, 7, *range(9, 12)]),
        (10, False, [5, 7, 10, 11]),
        (11, False, [5, 7, 10, 11]),
    ],
)
def test_what_a_later_leader_took_is_not_finished(first: int, lost: bool, comes: list[int]) -> None:
    """`first` is the first of its records. Finished are those below 5, and 6, 8 and 9."""
    one = given_out(range(10))
    one.reach(10, 2)
    for offset in (0, 1, 2, 3, 4, 6, 8, 9):
        one.finish(offset)
    read, again = min(first, 5), Finished(one.base, one.text(), one.epoch)
    came = [offset for offset in range(read, first) if again.admit(offset)]
    assert again.follow(first, 3) is lost
    came += [offset for offset in range(first, 12) if again.admit(offset)]
    assert came == [*comes]
    for offset in came:
        again.give(offset)
        again.finish(offset)
    assert (again.base, again.text(), again.epoch) == (12, "", 3)


def test_the_last_leaders_epoch_is_kept_and_says_nothing_of_what_was_committed_without_one() -> None:
    one = Finished(5)
    assert not one.follow(2, 4)
    assert not one.admit(2)
    assert one.epoch == 4
    one.reach(6, 3)
    assert one.after(set()).epoch == 4
    one.reach(7, 5)
    assert one.epoch == 5
