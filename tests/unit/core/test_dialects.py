"""Each dialect's exact rules, as docs/headers.md states them."""

import struct
from datetime import datetime

import pytest

from delaybridge.core import fields, headers
from delaybridge.core.durations import parse_levels
from delaybridge.core.explain import explain
from delaybridge.core.schedule import Limits, PassThrough, Reading, Recurrence, Refused, Request

NOW = int(datetime.fromisoformat("2027-01-01T09:00:00+00:00").timestamp() * 1000)
LIMITS = Limits()
HOUR = 3_600_000
Pairs = dict[str, fields.Value]
TOO_LONG = LIMITS.max_delay + 1


def read(pairs: Pairs, limits: Limits = LIMITS) -> Reading:
    return headers.read(fields.table(pairs.items()), NOW, limits)


def in_ms(pairs: Pairs, limits: Limits = LIMITS) -> int:
    """How long after NOW a single delivery is due."""
    reading = read(pairs, limits)
    assert isinstance(reading, Request), reading
    assert reading.schedule.recurrence is None
    return reading.schedule.due - NOW


def refused(pairs: Pairs) -> tuple[str, str]:
    reading = read(pairs)
    assert isinstance(reading, Refused), reading
    return reading.reason, reading.dialect


def passes(pairs: Pairs) -> str:
    reading = read(pairs)
    assert isinstance(reading, PassThrough), reading
    return reading.dialect


def deliveries(pairs: Pairs, count: int = 5) -> list[int]:
    explanation = explain(pairs, NOW, LIMITS, count)
    assert explanation.verdict == "delayed", explanation
    return [delivery.due - NOW for delivery in explanation.deliveries]


@pytest.mark.parametrize(
    ("pairs", "delay", "dialect"),
    [
        ({"x-delay": 5000}, 5000, "rabbitmq"),
        ({"x-delay": "5000"}, 5000, "rabbitmq"),
        ({"x-delay": 1500.9}, 1500, "rabbitmq"),
        ({"x_delay": 5000}, 5000, "delaybridge"),
        ({"x-delay": "90s"}, 90_000, "delaybridge"),
        ({"x-delay": "PT15M"}, 900_000, "delaybridge"),
        ({"x-delay-until": NOW + 7}, 7, "delaybridge"),
        ({"x-delay-until": "2027-01-01T11:00:00+01:00"}, HOUR, "delaybridge"),
        ({"AMQ_SCHEDULED_DELAY": 5000}, 5000, "activemq"),
        ({"AMQ_SCHEDULED_DELAY": "5000"}, 5000, "activemq"),
        ({"AMQ_SCHEDULED_PERIOD": 7000}, 7000, "activemq"),
        ({"AMQ_SCHEDULED_DELAY": 5000, "AMQ_SCHEDULED_PERIOD": 7000}, 5000, "activemq"),
        ({"DELAY": 1}, 1000, "rocketmq"),
        ({"DELAY": "3"}, 10_000, "rocketmq"),
        ({"DELAY": 18}, 2 * HOUR, "rocketmq"),
        ({"DELAY": 99}, 2 * HOUR, "rocketmq"),
        ({"TIMER_DELAY_SEC": "5"}, 5000, "rocketmq"),
        ({"TIMER_DELAY_MS": 5}, 5, "rocketmq"),
        ({"TIMER_DELIVER_MS": NOW + 5}, 5, "rocketmq"),
        ({"__STARTDELIVERTIME": str(NOW + 5)}, 5, "alibaba"),
        ({"deliverAfter": 5}, 5, "pulsar"),
        ({"deliverAfter": "5s"}, 5000, "pulsar"),
        ({"deliverAt": NOW + 5}, 5, "pulsar"),
        ({"DelaySeconds": 900}, 900_000, "sqs"),
        ({"DelaySeconds": "100000"}, 100_000_000, "sqs"),
        ({"_AMQ_SCHED_DELIVERY": NOW + 5}, 5, "artemis"),
        ({"x-opt-delivery-delay": 5}, 5, "amqp"),
        ({"x-opt-delivery-time": NOW + 5}, 5, "amqp"),
    ],
)
def test_a_header_delays_in_its_systems_unit(pairs: Pairs, delay: int, dialect: str) -> None:
    reading = read(pairs)
    assert in_ms(pairs) == delay
    assert isinstance(reading, Request)
    assert reading.dialect == dialect


@pytest.mark.parametrize(
    "name", ["TIMER_DELIVER_MS", "__STARTDELIVERTIME", "deliverAt", "_AMQ_SCHED_DELIVERY", "x-opt-delivery-time", "x-delay-until"]
)
def test_an_instant_that_has_passed_is_due_at_once_and_tells_how_late_it_is(name: str) -> None:
    assert in_ms({name: NOW - 5000}) == -5000


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("x-delay", "rabbitmq"),
        ("x_delay", "delaybridge"),
        ("AMQ_SCHEDULED_DELAY", "activemq"),
        ("AMQ_SCHEDULED_PERIOD", "activemq"),
        ("AMQ_SCHEDULED_REPEAT", "activemq"),
        ("DELAY", "rocketmq"),
        ("TIMER_DELAY_SEC", "rocketmq"),
        ("TIMER_DELAY_MS", "rocketmq"),
        ("TIMER_DELIVER_MS", "rocketmq"),
        ("__STARTDELIVERTIME", "alibaba"),
        ("deliverAfter", "pulsar"),
        ("deliverAt", "pulsar"),
        ("DelaySeconds", "sqs"),
        ("_AMQ_SCHED_DELIVERY", "artemis"),
        ("x-opt-delivery-delay", "amqp"),
        ("x-opt-delivery-time", "amqp"),
        ("x-opt-delivery-period", "amqp"),
        ("x-opt-delivery-repeat", "amqp"),
    ],
)
@pytest.mark.parametrize("zero", [0, "0", "-0"])
def test_zero_is_no_delay(name: str, dialect: str, zero: fields.Value) -> None:
    assert passes({name: zero}) == dialect


@pytest.mark.parametrize(
    "name",
    ["x-delay", "x_delay", "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "__STARTDELIVERTIME", "deliverAfter", "deliverAt",
     "_AMQ_SCHED_DELIVERY", "x-opt-delivery-delay", "x-opt-delivery-time", "x-opt-delivery-period", "x-opt-delivery-repeat"],
)  # fmt: skip
def test_a_negative_value_is_no_delay_where_its_system_says_so(name: str) -> None:
    assert passes({name: -5000})


@pytest.mark.parametrize("name", ["AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT", "DelaySeconds"])
def test_a_negative_value_is_refused_where_its_system_refuses_it(name: str) -> None:
    assert refused({name: -1})[0] == "negative_value"


@pytest.mark.parametrize(
    ("pairs", "dialect"),
    [
        ({"x-delay": TOO_LONG}, "rabbitmq"),
        ({"x-delay": 2**63 - 1}, "rabbitmq"),
        ({"x-delay": 1e300}, "rabbitmq"),
        ({"x-delay": "3661d"}, "delaybridge"),
        ({"x-delay-until": NOW + TOO_LONG}, "delaybridge"),
        ({"x-delay-until": "9999-12-31T23:59:59Z"}, "delaybridge"),
        ({"x-delay-period": TOO_LONG, "x-delay-repeat": 1}, "delaybridge"),
        ({"x-delay-period": TOO_LONG, "x-delay-repeat": 1, "x-delay": 5}, "delaybridge"),
        ({"AMQ_SCHEDULED_DELAY": TOO_LONG}, "activemq"),
        ({"TIMER_DELAY_SEC": 2**62}, "rocketmq"),
        ({"TIMER_DELIVER_MS": 2**63 - 1}, "rocketmq"),
        ({"__STARTDELIVERTIME": NOW + TOO_LONG}, "alibaba"),
        ({"deliverAfter": "3661d"}, "pulsar"),
        ({"DelaySeconds": 2**40}, "sqs"),
        ({"_AMQ_SCHED_DELIVERY": 2**63 - 1}, "artemis"),
        ({"x-opt-delivery-delay": TOO_LONG}, "amqp"),
    ],
)
def test_beyond_the_limit_is_refused_never_delivered_at_once(pairs: Pairs, dialect: str) -> None:
    assert refused(pairs) == ("delay_too_long", dialect)


def test_the_limit_itself_is_taken() -> None:
    assert in_ms({"x-delay": LIMITS.max_delay}) == LIMITS.max_delay
    assert in_ms({"x-delay": 2**32 + 1}) == 2**32 + 1
    assert deliveries({"AMQ_SCHEDULED_PERIOD": LIMITS.max_delay}) == [LIMITS.max_delay]
    assert deliveries({"x-delay-period": LIMITS.min_period, "x-delay-repeat": LIMITS.max_repeat}, 1) == [LIMITS.min_period]


@pytest.mark.parametrize("name", sorted(name.decode() for name in headers.DELAY_NAMES if b"cron" not in name and b"CRON" not in name))
@pytest.mark.parametrize("value", [True, None])
def test_a_type_that_holds_no_number_is_refused_in_every_dialect(name: str, value: fields.Value) -> None:
    assert refused({name: value})[0] == "wrong_type"


class TestRabbitmq:
    @pytest.mark.parametrize("value", [1500, "1500", b"1500", 1500.9])
    def test_the_delivered_message_bears_the_value_negated_as_a_64_bit_integer(self, value: fields.Value) -> None:
        reading = read({"x-delay": value})
        assert isinstance(reading, Request)
        assert reading.headers == fields.entry("x-delay", -1500)

    def test_a_duration_or_an_underscore_is_ours_and_is_not_negated(self) -> None:
        for name, value in (("x-delay", "2s"), ("x_delay", 2000)):
            reading = read({name: value})
            assert isinstance(reading, Request)
            assert reading.headers == b""

    @pytest.mark.parametrize("value", [0, -1500, "0", "-7", 0.9, -0.5, b"-3", struct.pack(">q", -1500)])
    def test_no_delay_keeps_the_header_as_it_was(self, value: fields.Value) -> None:
        reading = read({"x-delay": value, "a": 1})
        assert isinstance(reading, PassThrough)
        assert reading.headers == fields.entry("x-delay", value) + fields.entry("a", 1)

    def test_text_that_is_no_number_is_refused(self) -> None:
        assert refused({"x-delay": "soon"}) == ("bad_duration", "delaybridge")


class TestOwn:
    def test_epoch_seconds_are_refused(self) -> None:
        assert refused({"x-delay-until": NOW // 1000}) == ("bad_instant", "delaybridge")
        assert refused({"x-delay": 5, "x-delay-ends": str(NOW // 1000)})[0] == "bad_instant"
        assert refused({"x-delay-until": "next week"})[0] == "bad_instant"

    def test_repeats_come_a_period_apart_after_the_delay(self) -> None:
        assert deliveries({"x-delay": 5, "x-delay-period": "10s", "x-delay-repeat": 2}) == [5, 10_005, 20_005]

    @pytest.mark.parametrize("delay", [{}, {"x-delay": 0}, {"x-delay": -5000}])
    def test_without_a_delay_the_first_comes_after_one_period(self, delay: Pairs) -> None:
        assert deliveries(delay | {"x-delay-period": "10s", "x-delay-repeat": 2}) == [10_000, 20_000, 30_000]
        reading = read(delay | {"x-delay-period": "10s", "x-delay-repeat": 2})
        assert isinstance(reading, Request)
        assert (reading.dialect, reading.headers) == ("delaybridge", b"")

    def test_repeats_from_an_instant_begin_there(self) -> None:
        assert deliveries({"x-delay-until": NOW + 7, "x-delay-period": 1000, "x-delay-repeat": 1}) == [7, 1007]

    def test_repeats_from_an_instant_that_has_passed_begin_now(self) -> None:
        assert deliveries({"x-delay-until": NOW - HOUR, "x-delay-period": 1000, "x-delay-repeat": 1}) == [0, 1000]

    def test_a_period_with_an_end_repeats_as_often_as_fits(self) -> None:
        assert deliveries({"x-delay-period": 1000, "x-delay-ends": NOW + 3500}) == [1000, 2000, 3000]
        assert deliveries({"x-delay-period": 1000, "x-delay-ends": NOW + 1000}) == [1000]
        assert deliveries({"x-delay": 500, "x-delay-period": 1000, "x-delay-ends": NOW + 3500}) == [500, 1500, 2500, 3500]
        assert refused({"x-delay-period": 1000, "x-delay-ends": NOW + 999})[0] == "ends_before_due"
        assert refused({"x-delay-period": 1000, "x-delay-ends": NOW + 366 * 24 * HOUR})[0] == "repeat_too_large"

    @pytest.mark.parametrize("begin", [{"x-delay": "1d"}, {"x-delay-until": NOW + 24 * HOUR}])
    def test_what_fits_before_an_end_is_counted_from_the_first_delivery(self, begin: Pairs) -> None:
        assert deliveries(begin | {"x-delay-period": 1000, "x-delay-ends": NOW + 24 * HOUR + 1500}) == [24 * HOUR, 24 * HOUR + 1000]

    def test_zero_repeats_are_one_delivery(self) -> None:
        assert in_ms({"x-delay-period": 1000, "x-delay-repeat": 0}) == 1000

    def test_a_cron_is_read_in_its_zone(self) -> None:
        assert deliveries({"x-delay-cron": "0 11 * * *", "x-delay-timezone": "Europe/Berlin"}, 1) == [HOUR]
        assert deliveries({"x-delay-cron": "0 11 * * *"}, 1) == [2 * HOUR]

    def test_a_delay_is_added_to_each_match(self) -> None:
        assert deliveries({"x-delay-cron": "@hourly", "x-delay": "5s"}, 2) == [HOUR + 5000, 2 * HOUR + 5000]

    def test_a_cron_keeps_the_plugins_negated_header_only_for_a_numeric_delay(self) -> None:
        reading = read({"x-delay-cron": "@hourly", "x-delay": 5000})
        assert isinstance(reading, Request)
        assert (reading.dialect, reading.headers) == ("rabbitmq", fields.entry("x-delay", -5000))

    @pytest.mark.parametrize(
        ("pairs", "reason"),
        [
            ({"x-delay": 5, "x-delay-until": NOW + 5}, "ambiguous_schedule"),
            ({"x-delay-until": NOW + 5, "x-delay-cron": "@daily"}, "ambiguous_schedule"),
            ({"x-delay-period": 1000}, "incomplete_schedule"),
            ({"x-delay-period": 1000, "x-delay": 5}, "incomplete_schedule"),
            ({"x-delay-repeat": 3}, "incomplete_schedule"),
            ({"x-delay-repeat": 0, "x-delay": 5}, "incomplete_schedule"),
            ({"x-delay-cron": "@daily", "x-delay-repeat": 3}, "incomplete_schedule"),
            ({"x-delay-cron": "@daily", "x-delay-period": 1000}, "incomplete_schedule"),
            ({"x-delay-cron": "@daily", "x-delay-period": 1000, "x-delay-ends": NOW + 99 * HOUR}, "incomplete_schedule"),
            ({"x-delay-period": 999, "x-delay-repeat": 1}, "period_too_short"),
            ({"x-delay-period": 0, "x-delay-repeat": 1}, "period_too_short"),
            ({"x-delay-period": "soon", "x-delay-repeat": 1}, "bad_duration"),
            ({"x-delay-period": 1000, "x-delay-repeat": -1}, "negative_value"),
            ({"x-delay-period": 1000, "x-delay-repeat": "many"}, "bad_number"),
            ({"x-delay-period": 1000, "x-delay-repeat": 10_001}, "repeat_too_large"),
            ({"x-delay-cron": ""}, "bad_cron"),
            ({"x-delay-cron": "often"}, "bad_cron"),
            ({"x-delay-cron": "0 0 31 2 *"}, "bad_cron"),
            ({"x-delay-cron": 5}, "wrong_type"),
            ({"x-delay-cron": "@daily", "x-delay-timezone": "Mars/Olympus"}, "bad_timezone"),
            ({"x-delay-cron": "* * * * *", "x-delay-period": 1000, "x-delay-repeat": 7000}, "overlapping_series"),
        ],
    )
    def test_combinations_that_make_no_schedule_are_refused(self, pairs: Pairs, reason: str) -> None:
        assert refused(pairs)[0] == reason

    def test_a_cron_beyond_the_limit_is_refused(self) -> None:
        reading = read({"x-delay-cron": "@yearly"}, Limits(max_delay=24 * HOUR))
        assert isinstance(reading, Refused)
        assert reading.reason == "delay_too_long"


class TestActivemq:
    def test_n_repeats_are_n_plus_one_deliveries(self) -> None:
        assert deliveries({"AMQ_SCHEDULED_DELAY": "5000", "AMQ_SCHEDULED_PERIOD": "1000", "AMQ_SCHEDULED_REPEAT": "2"}) == [
            5000,
            6000,
            7000,
        ]

    def test_without_a_delay_the_first_comes_after_one_period(self) -> None:
        assert deliveries({"AMQ_SCHEDULED_PERIOD": 1000, "AMQ_SCHEDULED_REPEAT": 1}) == [1000, 2000]

    def test_the_documents_example_every_hour_ten_messages_a_second_apart(self) -> None:
        pairs: Pairs = {
            "AMQ_SCHEDULED_CRON": "0 * * * *",
            "AMQ_SCHEDULED_DELAY": 1000,
            "AMQ_SCHEDULED_PERIOD": 1000,
            "AMQ_SCHEDULED_REPEAT": 9,
        }
        assert deliveries(pairs, 11) == [HOUR + 1000 * n for n in range(1, 11)] + [2 * HOUR + 1000]

    def test_a_cron_with_a_period_and_no_repeat_is_one_message_per_match(self) -> None:
        assert deliveries({"AMQ_SCHEDULED_CRON": "0 * * * *", "AMQ_SCHEDULED_PERIOD": 1000}, 2) == [HOUR, 2 * HOUR]

    def test_the_cron_is_real_cron(self) -> None:
        """ActiveMQ answers `* 1 * * *` asked at 17:10 with 01:11, `1-59/2` with even minutes, and knows no Sunday 7."""
        reading = read({"AMQ_SCHEDULED_CRON": "* 1 ? * 7"})
        assert isinstance(reading, Request)
        assert reading.schedule.due == int(datetime.fromisoformat("2027-01-03T01:00:00+00:00").timestamp() * 1000)
        assert deliveries({"AMQ_SCHEDULED_CRON": "1-59/2 * * * *"}, 2) == [60_000, 180_000]

    def test_the_cron_may_have_a_zone(self) -> None:
        assert deliveries({"AMQ_SCHEDULED_CRON": "0 11 * * *", "x-delay-timezone": "Europe/Berlin"}, 1) == [HOUR]

    def test_an_empty_cron_is_none(self) -> None:
        assert passes({"AMQ_SCHEDULED_CRON": ""}) == "activemq"

    def test_a_message_with_a_jobs_id_passes_through_and_leaves_nothing_to_delay_again(self) -> None:
        reading = read({"AMQ_SCHEDULED_DELAY": 5000, "AMQ_SCHEDULED_CRON": "nonsense", "scheduledJobId": "ID:1"})
        assert reading == PassThrough(headers=b"", dialect="activemq")

    @pytest.mark.parametrize(
        ("pairs", "reason"),
        [
            ({"AMQ_SCHEDULED_DELAY": 5, "AMQ_SCHEDULED_REPEAT": 3}, "period_too_short"),
            ({"AMQ_SCHEDULED_PERIOD": 1000, "AMQ_SCHEDULED_REPEAT": 10_001}, "repeat_too_large"),
            ({"AMQ_SCHEDULED_DELAY": "5s"}, "bad_number"),
            ({"AMQ_SCHEDULED_DELAY": 5.0}, "wrong_type"),
            ({"AMQ_SCHEDULED_CRON": "@often"}, "bad_cron"),
        ],
    )
    def test_what_cannot_be_honoured_is_refused(self, pairs: Pairs, reason: str) -> None:
        assert refused(pairs) == (reason, "activemq")

    def test_a_repeat_has_a_period_also_where_an_operator_sets_no_shortest_one(self) -> None:
        reading = read({"AMQ_SCHEDULED_DELAY": 5, "AMQ_SCHEDULED_REPEAT": 3}, Limits(min_period=0))
        assert isinstance(reading, Refused)
        assert reading.reason == "period_too_short"

    def test_all_four_headers_are_taken_off(self) -> None:
        reading = read(
            {"a": 1, "AMQ_SCHEDULED_DELAY": 5, "AMQ_SCHEDULED_PERIOD": 1000, "AMQ_SCHEDULED_REPEAT": 1, "AMQ_SCHEDULED_CRON": "@daily"}
        )
        assert isinstance(reading, Request)
        assert reading.headers == fields.entry("a", 1)


class TestRocketmq:
    def test_a_level_silences_the_timers(self) -> None:
        assert in_ms({"DELAY": 1, "TIMER_DELAY_SEC": "soon", "TIMER_DELIVER_MS": NOW + 5}) == 1000

    def test_no_level_does_not(self) -> None:
        assert in_ms({"DELAY": 0, "TIMER_DELAY_MS": 7}) == 7

    def test_of_the_timers_the_coarsest_comes_first(self) -> None:
        assert in_ms({"TIMER_DELAY_SEC": 5, "TIMER_DELAY_MS": 7, "TIMER_DELIVER_MS": NOW + 9}) == 5000
        assert in_ms({"TIMER_DELAY_MS": 7, "TIMER_DELIVER_MS": NOW + 9}) == 7

    def test_the_operators_levels_count(self) -> None:
        assert in_ms({"DELAY": 2}, Limits(levels=parse_levels("5s 1h"))) == HOUR

    @pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
    def test_text_that_is_no_number_is_refused(self, name: str) -> None:
        assert refused({name: "soon"}) == ("bad_number", "rocketmq")


@pytest.mark.parametrize(
    ("relative", "absolute", "dialect"), [("deliverAfter", "deliverAt", "pulsar"), ("x-opt-delivery-delay", "x-opt-delivery-time", "amqp")]
)
def test_a_relative_and_an_absolute_header_must_agree(relative: str, absolute: str, dialect: str) -> None:
    assert in_ms({relative: 5000, absolute: NOW + 5000}) == 5000
    assert in_ms({relative: 0, absolute: NOW + 5000}) == 5000
    assert refused({relative: 5000, absolute: NOW + 5001}) == ("ambiguous_schedule", dialect)


class TestAmqpAnnotations:
    def test_period_and_repeat_are_activemqs(self) -> None:
        assert deliveries({"x-opt-delivery-delay": 5, "x-opt-delivery-period": 1000, "x-opt-delivery-repeat": 1}) == [5, 1005]
        assert deliveries({"x-opt-delivery-time": NOW + 5, "x-opt-delivery-period": 1000, "x-opt-delivery-repeat": 1}) == [5, 1005]

    def test_an_absolute_time_is_the_delay_of_period_repeat_and_cron(self) -> None:
        assert deliveries({"x-opt-delivery-time": NOW - 5, "x-opt-delivery-period": 1000, "x-opt-delivery-repeat": 1}) == [1000, 2000]
        assert deliveries({"x-opt-delivery-time": NOW + 5, "x-opt-delivery-cron": "@hourly"}, 2) == [HOUR + 5, 2 * HOUR + 5]
        assert refused({"x-opt-delivery-time": NOW + 5, "x-opt-delivery-repeat": 1}) == ("period_too_short", "amqp")

    def test_delay_and_time_must_agree_beside_a_period_as_well(self) -> None:
        repeats: Pairs = {"x-opt-delivery-period": 1000, "x-opt-delivery-repeat": 1, "x-opt-delivery-time": NOW + 5}
        assert deliveries({"x-opt-delivery-delay": 5} | repeats) == [5, 1005]
        assert refused({"x-opt-delivery-delay": 6} | repeats) == ("ambiguous_schedule", "amqp")

    def test_a_cron_is_read(self) -> None:
        reading = read({"x-opt-delivery-cron": "@hourly"})
        assert isinstance(reading, Request)
        assert reading.schedule.recurrence == Recurrence(start=NOW, cron="0 * * * *")

    def test_a_repeat_alone_does_nothing(self) -> None:
        assert passes({"x-opt-delivery-repeat": 5}) == "amqp"
