import pytest

from delaybridge.core.durations import DEFAULT_LEVELS, parse_duration, parse_instant, parse_levels

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("5000", 5000),
        ("0", 0),
        ("-7", -7),
        ("+7", 7),
        ("500ms", 500),
        ("90s", 90 * SECOND),
        ("15m", 15 * MINUTE),
        ("1d12h", 36 * HOUR),
        ("2w", 14 * DAY),
        ("1w1d1h1m1s1ms", 8 * DAY + HOUR + MINUTE + SECOND + 1),
        ("5m30ms", 5 * MINUTE + 30),
        ("PT15M", 15 * MINUTE),
        ("P1DT12H", 36 * HOUR),
        ("P2W", 14 * DAY),
        ("PT0S", 0),
        ("PT0.5S", 500),
        ("PT1,25S", 1250),
    ],
)
def test_a_duration_reads_as_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


def test_fractions_of_a_millisecond_are_rounded_up_so_that_nothing_is_early() -> None:
    assert parse_duration("PT0.0001S") == 1
    assert parse_duration("PT1.999000001S") == 2000
    assert parse_instant("1970-01-02T00:00:00.0000001Z") == DAY + 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "s",
        "5 s",
        "1h1d",
        "1s1s",
        "5S",
        "1.5h",
        "1y",
        "P",
        "PT",
        "P1DT",
        "P1M",
        "P1Y",
        "pt5s",
        "-5s",
        "1_000",
        "\u0661",
        "9" * 20,
        "5s\n",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1798794000000", 1_798_794_000_000),
        ("2027-01-01T09:00:00Z", 1_798_794_000_000),
        ("2027-01-01T10:00:00+01:00", 1_798_794_000_000),
        ("2027-01-01t04:00:00-05:00", 1_798_794_000_000),
        ("2027-01-01 09:00:00.250z", 1_798_794_000_250),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_an_instant_reads_as_epoch_milliseconds(text: str, instant: int) -> None:
    assert parse_instant(text) == instant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2027-01-01",
        "2027-01-01T09:00:00",
        "2027-13-01T09:00:00Z",
        "2027-02-29T09:00:00Z",
        "2027-W01-1T09:00:00Z",
        "0000-01-01T00:00:00Z",
        "2027-01-01T09:00:00+01:60",
        "2027-01-01T09:00:00-00:99",
        "2027-01-01T24:00:00Z",  # which Python reads from 3.14 on
    ],
)
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_instant(text)


def test_the_default_levels_are_rocketmqs_eighteen() -> None:
    levels = parse_levels(DEFAULT_LEVELS)
    assert len(levels) == 18
    assert (levels[0], levels[2], levels[17]) == (SECOND, 10 * SECOND, 2 * HOUR)


@pytest.mark.parametrize("text", ["", "5s 1s", "1s 1s", "0s", "1s soon"])
def test_levels_that_do_not_rise_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_levels(text)


def test_what_is_told_as_an_example_of_levels_is_one() -> None:
    with pytest.raises(ValueError, match=r"such as '1s 5s 10s 30s'$"):
        parse_levels("5s 1s")


@pytest.mark.parametrize("text", ["1000.0", "1.5s", "0,5h"])
def test_a_fraction_where_none_is_read_is_told_how_to_write_one(text: str) -> None:
    """As JMS and Java write a double, and Go a duration."""
    with pytest.raises(ValueError, match=r"is not a duration such as .*: write a fraction as 1500ms, or as PT1\.5S$"):
        parse_duration(text)
