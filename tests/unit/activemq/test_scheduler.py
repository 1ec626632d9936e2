"""Management messages of ActiveMQ's scheduler: how they are read, and what shows a scheduled message."""

from __future__ import annotations

import pytest
from contract.stores import T0, record
from msgspec.structs import replace
from pydantic import SecretStr

from delaybridge.adapters.activemq import ActiveMQ, adapter
from delaybridge.adapters.activemq.outgoing import LONGEST_HEADER, MOST_HEADERS
from delaybridge.adapters.activemq.scheduler import DESTINATIONS, answered, request
from delaybridge.adapters.scheduler_requests import Browse, Manageable, Remove, RemoveAll, Unclear
from delaybridge.core import fields
from delaybridge.core.message import Message, Properties, message
from delaybridge.core.schedule import Recurrence, Schedule

WINDOW = {"ACTION_START_TIME": "1000", "ACTION_END_TIME": "2000"}
LARGEST = 1000
REPLY = Properties(reply_to=b"/remote-temp-queue/ID:a-1:1")


def asked(headers: dict[str, str], properties: Properties = REPLY) -> object:
    return request(message(b"", dict(headers), properties))


def test_the_adapter_stands_in_for_the_scheduler_unless_told_otherwise() -> None:
    assert isinstance(adapter, Manageable)
    assert len(adapter.management(ActiveMQ(url=SecretStr("stomp://127.0.0.1:1")))) == len(DESTINATIONS) == 2
    assert adapter.management(ActiveMQ(url=SecretStr("stomp://127.0.0.1:1"), management=False)) == []


def test_browse_asks_for_all_or_for_a_window() -> None:
    assert asked({"AMQ_SCHEDULER_ACTION": "BROWSE"}) == Browse("/remote-temp-queue/ID:a-1:1")
    assert asked({"AMQ_SCHEDULER_ACTION": "BROWSE", **WINDOW}) == Browse("/remote-temp-queue/ID:a-1:1", 1000, 2000)


def test_half_a_window_counts_as_none_for_browse_and_is_refused_where_it_would_remove_everything() -> None:
    half = {"ACTION_START_TIME": "1000"}
    assert asked({"AMQ_SCHEDULER_ACTION": "BROWSE", **half}) == Browse("/remote-temp-queue/ID:a-1:1")
    assert isinstance(asked({"AMQ_SCHEDULER_ACTION": "REMOVEALL", **half}), Unclear)


def test_remove_names_a_job_and_remove_all_may_have_a_window() -> None:
    assert asked({"AMQ_SCHEDULER_ACTION": "REMOVE", "scheduledJobId": "j1"}) == Remove("j1")
    assert asked({"AMQ_SCHEDULER_ACTION": "REMOVEALL"}) == RemoveAll()
    assert asked({"AMQ_SCHEDULER_ACTION": "REMOVEALL", **WINDOW}) == RemoveAll(1000, 2000)


@pytest.mark.parametrize(
    ("headers", "because"),
    [
        ({}, "none of"),
        ({"AMQ_SCHEDULER_ACTION": "browse"}, "none of"),
        ({"AMQ_SCHEDULER_ACTION": "REMOVE"}, "scheduledJobId"),
        ({"AMQ_SCHEDULER_ACTION": "REMOVEALL", "ACTION_START_TIME": "now", "ACTION_END_TIME": "2"}, "no number"),
    ],
)
def test_what_cannot_be_done_says_why(headers: dict[str, str], because: str) -> None:
    found = asked(headers)
    assert isinstance(found, Unclear)
    assert because in found.detail


@pytest.mark.parametrize(
    "to",
    [
        *(None, b"", b"somewhere", b"/temp-queue/its-own", b"/queue/a\nb"),
        *(b"/queue/ ", b"/topic/,", b"/queue/?a=b", b"/queue/a,", b"/remote-temp-queue/ , ", b"/queue/" + b"x" * 10_240),
    ],
)
def test_browse_without_an_address_for_the_answers_says_so(to: bytes | None) -> None:
    assert isinstance(asked({"AMQ_SCHEDULER_ACTION": "BROWSE"}, Properties(reply_to=to)), Unclear)


def lines(sent: bytes) -> dict[str, str]:
    """The headers as STOMP reads them: of repeated ones the first counts."""
    head, _, _ = sent.partition(b"\n\n")
    found: dict[str, str] = {}
    for line in head.decode().splitlines()[1:]:
        name, _, value = line.partition(":")
        found.setdefault(name, value.replace("\\c", ":"))
    return found


def test_a_scheduled_message_is_shown_as_activemq_shows_it() -> None:
    kept = replace(
        record(due=T0 + 60_000, address="/queue/q1", chosen_id="job:1"),
        message=message(b"one", {"foo": "bar"}, Properties(type=b"T", reply_to=b"/queue/back", priority=7, delivery_mode=2, text=True)),
    )
    shown = answered(kept, "/remote-temp-queue/ID:1", T0, LARGEST)
    assert shown.endswith(b"\n\none\0")
    assert lines(shown) == {
        "destination": "/remote-temp-queue/ID:1", "receipt": "answer", "scheduledJobId": "job:1", "original-destination": "/queue/q1",
        "AMQ_SCHEDULED_DELAY": "60000", "x-delay-due": str(T0 + 60_000), "persistent": "false", "priority": "7", "type": "Advisory",
        "reply-to": "/queue/back", "foo": "bar",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("recurrence", "expected"),
    [
        (Recurrence(start=T0, delay=5000, period=1000, repeat=3), {"DELAY": "5000", "PERIOD": "1000", "REPEAT": "3"}),
        (Recurrence(start=T0, cron="0 * * * *"), {"CRON": "0 * * * *"}),
    ],
)
def test_a_repeat_or_a_cron_is_shown_with_the_headers_that_made_it(recurrence: Recurrence, expected: dict[str, str]) -> None:
    shown = lines(answered(replace(record(), schedule=Schedule(due=T0 + 9, recurrence=recurrence)), "/queue/r", T0, LARGEST))
    assert {name.removeprefix("AMQ_SCHEDULED_"): value for name, value in shown.items() if name.startswith("AMQ_")} == expected


def test_a_message_that_activemq_cannot_carry_is_still_listed() -> None:
    kept = replace(record(chosen_id="j"), message=Message(b"body", fields.table([("long", "x" * 20_000)])))
    shown = lines(answered(kept, "/queue/r", T0, LARGEST))
    assert (shown["scheduledJobId"], shown["type"], "long" in shown) == ("j", "Advisory", False)


@pytest.mark.parametrize("count", [900, 980, 985, 990, 995, 1000])
def test_an_answer_has_no_more_headers_than_activemq_takes(count: int) -> None:
    kept = replace(record(chosen_id="j"), message=message(b"", {f"h{number}": "" for number in range(count)}))
    kept = replace(
        kept, schedule=Schedule(due=T0 + 9, recurrence=Recurrence(start=T0, delay=5000, period=1000, repeat=3, cron="0 * * * *"))
    )
    assert answered(kept, "/queue/r", T0, LARGEST).partition(b"\n\n")[0].count(b"\n") <= MOST_HEADERS


@pytest.mark.parametrize("address", ["x" * 20_000, "a\0b"])
def test_an_address_that_no_header_holds_does_not_damage_the_answer(address: str) -> None:
    shown = answered(record("body", chosen_id="j", address=address), "/queue/r", T0, LARGEST)
    assert max(map(len, shown.splitlines())) < LONGEST_HEADER
    assert (shown.index(b"\0"), lines(shown)["scheduledJobId"]) == (len(shown) - 1, "j")


def test_a_producer_cannot_put_its_own_words_in_the_place_of_the_bridges() -> None:
    kept = replace(record(chosen_id="real"), message=message(b"", {"scheduledJobId": "forged", "original-destination": "/queue/x"}))
    shown = lines(answered(kept, "/queue/r", T0, LARGEST))
    assert (shown["scheduledJobId"], shown["original-destination"]) == ("real", "orders")
