"""What is common to all dialects: names, types, ids, destinations, modifiers, what is left. Each dialect's own rules: test_dialects.py."""

import re
import struct
from datetime import datetime
from pathlib import Path

import pytest

from delaybridge.core import fields, headers
from delaybridge.core.durations import LATEST_INSTANT
from delaybridge.core.reasons import Reason
from delaybridge.core.schedule import Cancel, Limits, PassThrough, Reading, Refused, Request

NOW = int(datetime.fromisoformat("2027-01-01T09:00:00+00:00").timestamp() * 1000)
LIMITS = Limits()
PAGE = (Path(__file__).parents[3] / "docs" / "headers.md").read_text()


def read(*pairs: tuple[str, fields.Value], limits: Limits = LIMITS) -> Reading:
    return headers.read(fields.table(pairs), NOW, limits)


def requested(*pairs: tuple[str, fields.Value]) -> Request:
    reading = read(*pairs)
    assert isinstance(reading, Request), reading
    return reading


def passed(*pairs: tuple[str, fields.Value]) -> PassThrough:
    reading = read(*pairs)
    assert isinstance(reading, PassThrough), reading
    return reading


def refused(*pairs: tuple[str, fields.Value]) -> str:
    reading = read(*pairs)
    assert isinstance(reading, Refused), reading
    assert reading.detail
    return reading.reason


def test_a_message_without_control_headers_passes_through_with_its_very_table() -> None:
    table = fields.table([("traceparent", "00-1"), ("x-delayed", 5), ("X-Delay", 5), ("delay", 7)])
    reading = headers.read(table, NOW, LIMITS)
    assert isinstance(reading, PassThrough)
    assert reading.headers is table


def test_all_other_headers_stay_byte_for_byte_in_their_order_and_twice_where_they_stood_twice() -> None:
    kept = [fields.entry("a", 1), b"\x01bT" + bytes(8), fields.entry("a", 2), b"\xff" + b"\xfe" * 255 + b"V"]
    table = kept[0] + fields.entry("x-delay", "5s") + kept[1] + kept[2] + fields.entry("x-delay-id", "i") + kept[3]
    reading = headers.read(table, NOW, LIMITS)
    assert isinstance(reading, Request)
    assert reading.headers == b"".join(kept)


@pytest.mark.parametrize("table", [b"\x07", b"\x07x-delayl\0", b"\x07x-delay?", fields.entry("x-delay", 5) + b"\x03abc"])
def test_a_damaged_table_is_refused_whatever_stands_before_the_damage(table: bytes) -> None:
    reading = headers.read(table, NOW, LIMITS)
    assert isinstance(reading, Refused)
    assert reading.reason == "header_damaged"


def test_underscores_stand_for_hyphens_in_our_own_headers() -> None:
    reading = requested(
        ("x_delay_until", NOW + 5), ("x_delay_id", "order-17"), ("x_delay_to", "a"), ("x_delay_ends", NOW + 9), ("x_delay_misfire", "all")
    )
    assert (reading.schedule.due, reading.id, reading.to, reading.schedule.ends, reading.schedule.misfire) == (
        NOW + 5,
        "order-17",
        "a",
        NOW + 9,
        "all",
    )


def test_the_last_of_duplicates_counts_however_it_is_spelled() -> None:
    assert requested(("x-delay", 1000), ("x-delay", 2000)).schedule.due == NOW + 2000
    assert requested(("x-delay-until", NOW + 1), ("x_delay_until", NOW + 2)).schedule.due == NOW + 2


class TestTypes:
    @pytest.mark.parametrize("tag", "bBsuIilL")
    def test_every_integer_type_is_read(self, tag: str) -> None:
        sizes = {"b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "l": 8, "L": 8}
        reading = headers.read(b"\x07x-delay" + tag.encode() + (100).to_bytes(sizes[tag]), NOW, LIMITS)
        assert isinstance(reading, Request)
        assert reading.schedule.due == NOW + 100

    @pytest.mark.parametrize(
        "value", [b"5000", b'"5000"', b"+5000", b"5s", b'"5s"', b"PT5S", struct.pack(">q", 5000), struct.pack(">i", 5000)]
    )
    def test_kafka_bytes_are_read_as_text_then_as_a_big_endian_integer(self, value: bytes) -> None:
        assert requested(("x-delay", value)).schedule.due == NOW + 5000

    @pytest.mark.parametrize("kind", ["<i", "<q"])
    @pytest.mark.parametrize("delay", [1000, 5000, 3_600_000])
    def test_a_little_endian_integer_never_makes_a_message_go_at_once(self, kind: str, delay: int) -> None:
        """.NET's BitConverter writes them; read the other way round, every second one is negative, which is no delay."""
        assert refused(("x-delay", struct.pack(kind, delay))) == "bad_number"

    @pytest.mark.parametrize("header", ["x-delay", "x-delay-until", "x-delay-ends", "DelaySeconds"])
    @pytest.mark.parametrize("value", [struct.pack(">d", 60_000.0), struct.pack(">d", NOW + 5000.0), struct.pack("<q", 96)])
    def test_bytes_that_as_an_integer_are_beyond_all_use_are_told_to_be_read_as_one(self, header: str, value: bytes) -> None:
        """Those of Kafka's DoubleSerializer; else it was told to raise the limit of delays."""
        reading = read((header, value), *([("x-delay", b"5")] if header == "x-delay-ends" else []))
        assert isinstance(reading, Refused)
        assert (reading.reason, f"is {int.from_bytes(value)} as a big-endian integer: send digits" in reading.detail) == (
            "bad_number",
            True,
        )

    def test_digits_that_are_beyond_the_limit_are_too_long_as_ever(self) -> None:
        assert refused(("x-delay", b"4652007308841189376")) == "delay_too_long"

    @pytest.mark.parametrize("delay", [struct.pack(">q", -5000), struct.pack(">i", -5000), b"-9000000000000000000"])
    def test_a_negative_delay_that_somebody_may_mean_asks_for_none(self, delay: bytes) -> None:
        assert isinstance(read(("x-delay", delay)), PassThrough)

    def test_kafka_bytes_of_printable_text_are_never_taken_for_a_big_endian_integer(self) -> None:
        assert refused(("x-delay", b"soon")) == "bad_duration"

    @pytest.mark.parametrize("value", [True, False, None, b"\xff\xfe\xfd"])
    def test_a_value_of_another_type_is_refused(self, value: fields.Value) -> None:
        assert refused(("x-delay", value)) == "wrong_type"

    @pytest.mark.parametrize("tag", "TDAFS")
    def test_a_timestamp_a_decimal_an_array_a_table_or_text_that_is_no_utf8_is_refused(self, tag: str) -> None:
        payload = {"T": bytes(8), "D": bytes(5), "A": bytes(4), "F": bytes(4), "S": b"\0\0\0\1\xff"}[tag]
        reading = headers.read(b"\x07x-delay" + tag.encode() + payload, NOW, LIMITS)
        assert isinstance(reading, Refused)
        assert reading.reason == "wrong_type"

    def test_a_timestamp_is_shown_as_a_number_and_called_by_its_name(self) -> None:
        reading = headers.read(b"\x0dx-delay-untilT" + (1_798_794_000).to_bytes(8), NOW, LIMITS)
        assert isinstance(reading, Refused)
        assert reading.detail == "x-delay-until: 1798794000 (timestamp) is not a number or text"

    @pytest.mark.parametrize("value", ["\u0661\u0662", "1_000", " 5", "5\n", "0x10", "1e3", "9" * 20, "nan", "inf", ""])
    def test_only_plain_ascii_digits_are_a_number(self, value: str) -> None:
        assert refused(("DelaySeconds", value)) == "bad_number"

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    def test_nan_and_infinity_are_refused(self, value: float) -> None:
        assert refused(("x-delay", value)) == "bad_number"


class TestIdsAndDestinations:
    def test_an_id_and_a_destination_without_a_delay_pass_through_with_it(self) -> None:
        reading = passed(("a", 1), ("x-delay-id", "i"), ("x-delay-to", "queue"))
        assert (reading.id, reading.to, reading.headers, reading.dialect) == ("i", "queue", fields.entry("a", 1), "")

    def test_an_id_may_be_an_integer(self) -> None:
        assert requested(("x-delay", "1s"), ("x-delay-id", 42)).id == "42"

    @pytest.mark.parametrize("value", ["", "x" * 256, "\u00e9" * 128, "a\0b", "a\nb", "a\x7f"])
    def test_an_id_that_is_no_plain_text_is_refused(self, value: str) -> None:
        assert refused(("x-delay", 1000), ("x-delay-id", value)) == "bad_id"
        assert refused(("x-delay-cancel", value)) == "bad_id"

    def test_an_id_of_255_bytes_is_taken_and_may_hold_blanks(self) -> None:
        chosen = "order 17 ".ljust(255, "x")
        assert requested(("x-delay", 1000), ("x-delay-id", chosen)).id == chosen

    @pytest.mark.parametrize("value", ["", "x" * 513, "a\r\nb"])
    def test_a_destination_that_is_no_plain_text_is_refused_with_or_without_a_delay(self, value: str) -> None:
        assert refused(("x-delay", 1000), ("x-delay-to", value)) == "bad_destination"
        assert refused(("x-delay-to", value)) == "bad_destination"

    def test_a_wrong_type_is_refused(self) -> None:
        assert refused(("x-delay-id", True)) == "wrong_type"


class TestDeliveryHeaders:
    def test_a_delivered_message_bears_id_occurrence_and_due_time(self) -> None:
        table = headers.delivered(fields.entry("a", 1), "\u00e9-17", 3, NOW)
        assert fields.plain(table) == {"a": 1, "x-delay-id": "\u00e9-17", "x-delay-occurrence": 3, "x-delay-due": NOW}
        assert [field.tag for field in fields.fields(table)] == ["l", "S", "l", "l"]

    def test_the_delivery_headers_of_an_earlier_delivery_are_taken_off(self) -> None:
        reading = headers.read(headers.delivered(fields.entry("a", 1), "i", 3, NOW), NOW, LIMITS)
        assert reading == PassThrough(headers=fields.entry("a", 1))

    def test_a_retry_with_copied_headers_is_a_message_of_its_own(self) -> None:
        """The copied negated x-delay asks for nothing, and the copied id is not the producer's."""
        first = requested(("x-delay", 1000), ("x-delay-id", "i"))
        copied = headers.delivered(first.headers, first.id, 1, NOW)
        again = headers.read(copied + fields.entry("x-delay", 2000), NOW, LIMITS)
        assert isinstance(again, Request)
        assert (again.id, again.schedule.due, fields.plain(again.headers)) == ("", NOW + 2000, {"x-delay": -2000})

    def test_without_the_occurrence_the_id_is_the_producers_again(self) -> None:
        assert requested(("x-delay", 1000), ("x-delay-id", "i"), ("x-delay-due", 5)).id == "i"

    def test_the_reason_on_a_dead_letter_is_taken_off(self) -> None:
        assert requested(("x-delay", "1s"), ("x-delay-reason", "bad_cron"), ("x-delay-detail", "d")).headers == b""


class TestCancel:
    @pytest.mark.parametrize("name", ["x-delay-cancel", "x_delay_cancel"])
    def test_a_cancellation_names_an_id(self, name: str) -> None:
        assert read((name, "order-17")) == Cancel(id="order-17")

    def test_other_headers_that_ask_for_nothing_do_not_matter(self) -> None:
        assert read(("x-delay-cancel", "i"), ("x-delay-id", "j"), ("x-delay", -5), ("x-delay-occurrence", 1)) == Cancel(id="i")

    def test_a_cancellation_with_a_schedule_is_ambiguous(self) -> None:
        assert refused(("x-delay-cancel", "i"), ("DELAY", 3)) == "ambiguous_schedule"


class TestModifiers:
    def test_ends_and_misfire_go_with_every_dialect(self) -> None:
        schedule = requested(("DelaySeconds", 5), ("x-delay-ends", NOW + 5000), ("x-delay-misfire", "skip")).schedule
        assert (schedule.ends, schedule.misfire) == (NOW + 5000, "skip")

    def test_an_end_before_the_first_delivery_is_refused(self) -> None:
        assert refused(("x-delay", 1000), ("x-delay-ends", NOW + 999)) == "ends_before_due"

    def test_what_asks_for_no_delay_is_due_now_and_its_modifiers_are_read(self) -> None:
        assert refused(("x-delay", 0), ("x-delay-ends", NOW - 1)) == "ends_before_due"
        assert refused(("DelaySeconds", 0), ("x-delay-misfire", "never")) == "bad_misfire"
        passed(("x-delay", 0), ("x-delay-ends", NOW), ("x-delay-misfire", "skip"))

    @pytest.mark.parametrize("ends", [LATEST_INSTANT + 1, 2**63 - 1, "9999999999999999999"])
    def test_an_end_beyond_the_calendar_is_the_calendars(self, ends: int | str) -> None:
        """As some clients say "never". An export holds no larger number than 2**63 - 1, and no date beyond the year 9999."""
        assert requested(("x-delay", 1000), ("x-delay-ends", ends)).schedule.ends == LATEST_INSTANT

    @pytest.mark.parametrize("rule", ["never", "", "FIRE"])
    def test_a_misfire_rule_that_is_not_known_is_refused(self, rule: str) -> None:
        assert refused(("x-delay", 1000), ("x-delay-misfire", rule)) == "bad_misfire"

    @pytest.mark.parametrize("pair", [("x-delay-ends", NOW), ("x-delay-misfire", "fire"), ("x-delay-timezone", "UTC")])
    def test_a_modifier_without_a_delay_is_incomplete(self, pair: tuple[str, fields.Value]) -> None:
        assert refused(pair) == "incomplete_schedule"

    def test_a_modifier_beside_a_header_that_means_no_delay_passes_through(self) -> None:
        assert passed(("DelaySeconds", 0), ("x-delay-misfire", "fire")).headers == b""

    def test_a_zone_without_a_cron_is_incomplete(self) -> None:
        assert refused(("x-delay", 1000), ("x-delay-timezone", "UTC")) == "incomplete_schedule"


class TestTwoDialects:
    def test_that_agree_are_one_schedule(self) -> None:
        reading = requested(("AMQ_SCHEDULED_DELAY", 5000), ("DelaySeconds", 5), ("deliverAt", NOW + 5000), ("x-delay", 5000))
        assert (reading.schedule.due, reading.dialect, fields.plain(reading.headers)) == (NOW + 5000, "rabbitmq", {"x-delay": -5000})

    def test_that_disagree_are_refused(self) -> None:
        assert refused(("AMQ_SCHEDULED_DELAY", 5000), ("DelaySeconds", 6)) == "ambiguous_schedule"

    def test_that_agree_on_the_first_delivery_only_are_refused(self) -> None:
        pairs: list[tuple[str, fields.Value]] = [("AMQ_SCHEDULED_PERIOD", 5000), ("AMQ_SCHEDULED_REPEAT", 1), ("DelaySeconds", 5)]
        assert refused(*pairs) == "ambiguous_schedule"

    def test_of_which_one_means_no_delay_are_no_conflict(self) -> None:
        reading = requested(("x-delay", -5000), ("DelaySeconds", 5))
        assert (reading.schedule.due, reading.dialect, reading.headers) == (NOW + 5000, "sqs", b"")

    def test_of_which_one_cannot_be_read_are_refused_in_its_name(self) -> None:
        reading = read(("x-delay", 5000), ("DelaySeconds", "soon"))
        assert isinstance(reading, Refused)
        assert (reading.reason, reading.dialect) == ("bad_number", "sqs")


def test_the_gate_matches_what_asks_for_something_and_nothing_that_only_goes_with_it() -> None:
    assert headers.DELAY_NAMES < headers.CONTROL_NAMES
    assert {b"x-delay", b"x_delay_cancel", b"x-delay-cron", b"AMQ_SCHEDULED_CRON", b"DelaySeconds"} < headers.DELAY_NAMES
    assert not headers.DELAY_NAMES & {b"x-delay-id", b"x-delay-to", b"x-delay-occurrence", b"AMQ_SCHEDULED_REPEAT", b"scheduledJobId"}


class TestThePage:
    def test_lists_each_reason_with_its_words(self) -> None:
        rows = re.findall(r"^\| `([a-z_]+)` \| (.+) \| (.+) \|$", PAGE.split("## When it is refused")[1], re.MULTILINE)
        assert rows == [(reason.value, reason.meaning, reason.remedy) for reason in Reason]

    def test_names_each_header_that_asks_for_something(self) -> None:
        own = {name for name in headers.DELAY_NAMES if name.startswith(b"x_delay")}
        assert [name for name in headers.DELAY_NAMES - own if f"`{name.decode()}`" not in PAGE and b"x-opt-delivery-" not in name] == []

    def test_names_each_dialect(self) -> None:
        assert [dialect.name for dialect in headers.DIALECTS if dialect.name != "delaybridge" and f"`{dialect.name}`" not in PAGE] == []
