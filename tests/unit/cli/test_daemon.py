"""Commands that ask a running daemon: what they ask, what they print, how they exit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_daemon import LETTER, MESSAGE, STATUS, Daemon, call

pytestmark = pytest.mark.usefixtures("alone")


# --- reading ---


def test_status_tells_what_waits_and_what_is_wrong(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/status", STATUS)

    told = call("status").stdout

    for part in (
        "b1 (0.1.0)",
        "1m",
        "1.5",
        "below the limit",
        "paused",
        "NOT CONNECTED",
        "unroutable: no queue",
        "4 scheduled",
        "reminders",
    ):
        assert part in told.replace("1s 500ms", "1.5")


def test_status_shows_the_first_of_many_addresses_and_how_many_more_there_are(daemon: Daemon) -> None:
    many = [{"address": f"gone-{number}", "attempts": 1, "error": "unroutable", "retry_at": STATUS["now"]} for number in range(2_000)]
    waiting = [{"broker": "rabbit", "address": f"there-{number}", "pending": 1} for number in range(21)]
    lanes: Any = STATUS["lanes"]
    answer = STATUS | {"lanes": [lanes[0] | {"held": many}], "by_address": waiting}
    daemon.on("GET /api/v1/status", answer, answer)

    told, listed = call("status").stdout, call("status", "-o", "json").stdout

    assert (told.count("gone-"), told.count("there-")) == (20, 20)
    assert "gone-19" in told
    assert "\nand 1,980 more\n" in told
    assert "\nand 1 more\n" in told
    assert len(json.loads(listed)["lanes"][0]["held"]) == 2_000


def test_status_does_not_say_that_nothing_waits_where_nobody_knows(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/status", STATUS | {"pending": None})

    (line,) = (line.split() for line in call("status").stdout.splitlines() if line.split()[:1] == ["pending"] and "by" not in line)
    assert line == ["pending", "?"]


def test_status_tells_why_something_is_not_connected(daemon: Daemon) -> None:
    lane = {"broker": "rabbit", "connected": False, "in_flight": 0, "published": 0, "held": [], "error": "rabbit:5672: Connection refused"}
    daemon.on("GET /api/v1/status", STATUS | {"lanes": [lane]})

    assert "NOT CONNECTED: rabbit:5672: Connection refused" in call("status").stdout


def test_status_tells_what_is_connected_and_takes_nothing(daemon: Daemon) -> None:
    lane = {"broker": "rabbit", "connected": True, "in_flight": 0, "published": 0, "held": [], "error": "memory alarm"}
    level = {"name": "level.1s", "wait": 1000, "connected": True, "depth": 0, "first_leaves": None, "error": "unroutable: no queue"}
    daemon.on("GET /api/v1/status", STATUS | {"lanes": [lane], "levels": [level]})

    told = call("status").stdout
    assert "connected: memory alarm" in told
    assert "connected: unroutable: no queue" in told


@pytest.mark.parametrize(("backlog", "rows"), [(12, "12 rows"), (1, "1 row")])
def test_status_tells_that_the_ledger_cannot_be_written_and_how_much_waits(daemon: Daemon, backlog: int, rows: str) -> None:
    daemon.on("GET /api/v1/status", STATUS | {"ledger": {"backlog": backlog, "error": "Not a directory"}})

    assert f"NOT WRITTEN, {rows} in no file yet: Not a directory" in call("status").stdout


def test_status_as_json_is_the_daemons_answer(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/status", STATUS)

    assert json.loads(call("status", "-o", "json").stdout) == STATUS


def test_a_listing_follows_pages_up_to_its_limit(daemon: Daemon) -> None:
    pages = [
        {"items": [MESSAGE | {"id": "a"}], "cursor": "1"},
        {"items": [], "cursor": "2"},
        {"items": [MESSAGE | {"id": "b"}], "cursor": ""},
    ]
    daemon.on("GET /api/v1/messages", *pages)

    told = call("list", "--broker", "rabbit", "--due-to", "1h", "--limit", "7", "-o", "ndjson")

    assert [json.loads(line)["id"] for line in told.stdout.splitlines()] == ["a", "b"]
    assert [query for _, query, _ in daemon.asked] == [
        {"broker": "rabbit", "due_to": "1h", "limit": limit, "cursor": cursor} for limit, cursor in (("7", ""), ("6", "1"), ("6", "2"))
    ]


def test_a_listing_is_a_table_for_people(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/messages", {"items": [MESSAGE], "cursor": ""})

    head, row = call("list").stdout.splitlines()

    assert head.split() == ["DUE", "ID", "N", "KIND", "TO", "ROUTE", "STATE", "BYTES"]
    assert row.split() == ["2026-11-24T08:00:00.000Z", "order-1", "1", "once", "rabbit:", "reminders", "orders", "waiting", "12"]


@pytest.mark.parametrize(("output", "told"), [("table", "no message is pending\n"), ("json", "[\n]\n"), ("ndjson", "")])
def test_an_empty_listing_is_told(daemon: Daemon, output: str, told: str) -> None:
    daemon.on("GET /api/v1/messages", {"items": [], "cursor": ""})

    assert call("list", "-o", output).stdout == told


def test_a_listing_in_which_nothing_matches_does_not_say_that_nothing_is_pending(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/messages", {"items": [], "cursor": ""})

    assert call("list", "--address", "gone").stdout == "no pending message matches\n"


def test_an_id_cannot_drive_the_terminal(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/messages", {"items": [MESSAGE | {"id": "a\x1b[2J[red]b"}], "cursor": ""})

    assert "a\\x1b[2J[red]b" in call("list").stdout


def test_show_tells_headers_the_next_due_times_and_what_it_waits_for(daemon: Daemon) -> None:
    detail = MESSAGE | {
        "headers": {"a": "1"},
        "properties": {},
        "recurrence": {"cron": "0 9 * * *"},
        "next": [1_795_507_200_000, 1_795_593_600_000],
        "waits_for": "route orders is paused",
    }
    daemon.on("GET /api/v1/messages/order%2F1", detail)

    told = call("show", "order/1").stdout

    assert "headers a        1" in told
    assert "recurrence cron  0 9 * * *" in told
    assert "2026-11-25T08:00:00.000Z" in told
    assert "waits for        route orders is paused" in told


def test_show_tells_a_period_in_words_and_nothing_of_what_is_not_set(daemon: Daemon) -> None:
    recurrence = {"start": 1_795_507_200_000, "delay": 0, "period": 600_000, "repeat": 3, "cron": "", "zone": "UTC"}
    daemon.on("GET /api/v1/messages/a", MESSAGE | {"recurrence": recurrence})

    told = call("show", "a").stdout

    assert "recurrence period  10m" in told
    assert "recurrence repeat  3" in told
    assert "UTC" not in told
    assert "recurrence start" not in told


def test_show_of_an_unknown_id_fails(daemon: Daemon) -> None:
    daemon.error("GET /api/v1/messages/x", 404, "unknown")

    told = call("show", "x")

    assert (told.exit_code, told.stderr) == (1, "It is unknown.\n")


@pytest.mark.parametrize("told", [{"event": "dead_lettered", "at": 1_795_507_200_000}, {}])
def test_show_of_a_dead_letter_tells_its_number_and_why(daemon: Daemon, told: dict[str, Any]) -> None:
    daemon.error("GET /api/v1/messages/order-1", 404, "too_late", **told)
    daemon.on("GET /api/v1/dead-letters", {"items": [LETTER | {"number": 3}, LETTER, LETTER | {"number": 18, "id": "b"}]}, {"items": []})

    told_of = call("show", "order-1")

    assert (told_of.exit_code, told_of.stderr) == (1, "dead-lettered, number 17: bad_duration: x-delay: 'abc' is not a duration\n")


@pytest.mark.parametrize(("event", "letters"), [("delivered", [LETTER]), ("dead_lettered", [])])
def test_show_of_a_message_that_is_gone_tells_what_became_of_it(daemon: Daemon, event: str, letters: list[dict[str, Any]]) -> None:
    daemon.error("GET /api/v1/messages/order-1", 404, "too_late", event=event, at=1_795_507_200_000)
    daemon.on("GET /api/v1/dead-letters", {"items": letters}, {"items": []})

    assert (call("show", "order-1").exit_code, call("show", "order-1").stderr) == (1, "It is too_late.\n")


# --- asking ---


@pytest.mark.parametrize("verb", ["cancel", "release"])
def test_what_is_done_is_told_with_status_0(daemon: Daemon, verb: str) -> None:
    daemon.on(f"POST /api/v1/messages/a/{verb}", {"outcome": "done", "event": None, "at": None})

    told = call(verb, "a")

    assert (told.exit_code, told.stdout) == (0, "done\n")


def test_what_is_released_and_cannot_go_out_says_why(daemon: Daemon) -> None:
    daemon.on("POST /api/v1/messages/a/release", {"outcome": "done", "event": None, "at": None, "waits_for": "route orders is paused"})

    told = call("release", "a")

    assert (told.exit_code, told.stdout) == (0, "done, but route orders is paused\n")


@pytest.mark.parametrize(
    ("status", "code", "sentence"),
    [
        (409, "too_late", "too_late: delivered at 2026-11-24T08:00:00.000Z"),
        (409, "in_flight", "in_flight: it is being published right now; ask again"),
        (404, "unknown", "unknown: the daemon never heard of this id, or has forgotten it"),
    ],
)
def test_what_is_not_done_is_told_with_status_1(daemon: Daemon, status: int, code: str, sentence: str) -> None:
    happened = {"event": "delivered", "at": 1_795_507_200_000} if code == "too_late" else {}
    daemon.error("POST /api/v1/messages/a/cancel", status, code, **happened)

    told = call("cancel", "a")
    as_json = json.loads(call("cancel", "a", "-o", "json").stdout)

    assert (told.exit_code, told.stderr) == (1, sentence + "\n")
    assert as_json == {"id": "a", "outcome": code, "event": None, "at": None} | happened


@pytest.mark.parametrize("words", ["cancel", "cancel a", "release", "reschedule", "show", "pause", "resume"])
def test_an_id_or_a_name_that_is_no_text_is_wrong_usage(daemon: Daemon, words: str) -> None:
    told = call(*words.split(), "\udcff", *(["1h"] if words == "reschedule" else []))

    assert (told.exit_code, "it is not UTF-8" in told.stderr, daemon.asked) == (2, True, [])


@pytest.mark.parametrize("words", ["list --address a\udcff", "send x --header h=a\udcff", "send x --address a\udcff", "observe a\udcff"])
def test_any_other_argument_that_is_no_text_is_told_by_its_bytes(daemon: Daemon, words: str) -> None:
    told = call(*words.split())

    assert (told.exit_code, told.stderr, daemon.asked) == (2, "the command line has bytes that are not UTF-8: b'\\xff'\n", [])


@pytest.mark.parametrize(
    ("id_", "segment"),
    [("..", "%2E%2E"), (".", "%2E"), ("...", "..."), ("a/b", "a%2Fb"), ("%2e%2e", "%252e%252e"), ("é?#", "%C3%A9%3F%23")],
)
def test_an_id_reaches_the_daemon_as_it_is(daemon: Daemon, id_: str, segment: str) -> None:
    daemon.on(f"POST /api/v1/messages/{segment}/cancel", {"outcome": "done"})
    daemon.on(f"GET /api/v1/messages/{segment}", MESSAGE)

    assert (call("cancel", id_).exit_code, call("show", id_).exit_code) == (0, 0)


@pytest.mark.parametrize(
    ("due", "sent"),
    [("1795507200000", 1_795_507_200_000), ("2h", "2h"), ("2026-11-24T08:00:00Z", "2026-11-24T08:00:00Z"), ("9" * 5000, "9" * 5000)],
)
def test_a_new_due_time_is_a_number_or_text(daemon: Daemon, due: str, sent: int | str) -> None:
    daemon.on("POST /api/v1/messages/a/reschedule", {"outcome": "done"})

    call("reschedule", "a", due)

    assert daemon.asked[0][2] == {"due": sent}


def test_a_route_is_paused_and_resumed(daemon: Daemon) -> None:
    daemon.on("POST /api/v1/routes/orders/pause", {"outcome": "done"})
    daemon.error("POST /api/v1/routes/order/resume", 404, "unknown")

    assert call("pause", "orders").stdout == "orders: paused\n"
    assert call("resume", "order").exit_code == 1


def test_a_message_is_sent_with_typed_headers(daemon: Daemon) -> None:
    daemon.on("POST /api/v1/messages", {"outcome": "done"}, status=202)

    call("send", "--route", "r", "-H", "x-delay:=5000", "-H", "note=a=b", "--property", "content_type=text/plain", "hello")
    call("send", "-", stdin=b"\xff\x00")

    properties = {"content_type": "text/plain"}
    assert [body for _, _, body in daemon.asked] == [
        {"route": "r", "headers": {"x-delay": 5000, "note": "a=b"}, "properties": properties, "body": "hello"},
        {"headers": {}, "properties": {}, "body_base64": "/wA="},
    ]


def test_a_message_that_would_be_dead_lettered_is_sent_only_by_force(daemon: Daemon) -> None:
    daemon.error("POST /api/v1/messages", 422, "bad_duration")
    assert (call("send", "-H", "x-delay=soon", "hello").exit_code, daemon.asked[0][2].get("force")) == (1, None)

    daemon.on("POST /api/v1/messages", {"outcome": "done"}, status=202)
    assert (call("send", "--force", "-H", "x-delay=soon", "hello").exit_code, daemon.asked[1][2]["force"]) == (0, True)


def test_a_header_that_is_given_twice_is_a_usage_error(daemon: Daemon) -> None:
    told = call("send", "-H", "x-delay=5", "-H", "x-delay:=6", "body")

    assert (told.exit_code, daemon.asked) == (2, [])
    assert "'x-delay' is given twice" in told.stderr


@pytest.mark.parametrize("header", ["nothing", "x:={", "x:=[1]", "=v", "x:=NaN", "x:=-Infinity", "x:=1e999"])
def test_what_is_no_header_is_a_usage_error(header: str) -> None:
    assert call("send", "-H", header, "body").exit_code == 2


@pytest.mark.parametrize(("status", "code", "exit_code"), [(503, "not_connected", 69), (400, "bad_request", 2), (422, "unroutable", 1)])
def test_a_message_that_was_not_sent_ends_with_the_reasons_own_status(daemon: Daemon, status: int, code: str, exit_code: int) -> None:
    daemon.error("POST /api/v1/messages", status, code)

    assert call("send", "body").exit_code == exit_code


# --- the shelf ---


def test_the_shelf_is_listed_with_reasons(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/dead-letters", {"items": [LETTER]}, {"items": []})

    told = call("dead-letter", "list")

    assert "17" in told.stdout
    assert "bad_duration" in told.stdout
    assert daemon.asked[1][1] == {"limit": "100", "after": "17"}


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(("command", "path", "one"), [("list", "messages", MESSAGE), ("dead-letter list", "dead-letters", LETTER)])
def test_a_table_says_that_it_does_not_show_all(daemon: Daemon, command: str, path: str, one: dict[str, Any], output: str) -> None:
    def shown(count: int) -> tuple[int, str]:
        daemon.on(f"GET /api/v1/{path}", {"items": [one] * count, "cursor": ""}, {"items": [], "cursor": ""})
        told = call(*command.split(), "--limit", "3", "-o", output)
        return told.stdout.count("order-1"), told.stderr

    assert shown(3) == (3, "")
    if output == "table":
        assert shown(4) == (3, "3 shown, there are more: --limit 30\n")


def test_each_number_is_tried_also_behind_one_that_fails(daemon: Daemon) -> None:
    daemon.error("POST /api/v1/dead-letters/1/retry", 404, "unknown")
    daemon.on("POST /api/v1/dead-letters/2/retry", {"outcome": "done"})

    told = call("dead-letter", "retry", "1", "2")

    assert (told.exit_code, told.stdout, told.stderr) == (1, "2: scheduled again\n", "1: It is unknown.\n")


@pytest.mark.parametrize("word", ["retry", "drop"])
def test_an_empty_shelf_is_said_to_be_empty(daemon: Daemon, word: str) -> None:
    daemon.on("GET /api/v1/dead-letters", {"items": []})

    told = call("dead-letter", word, "--all")

    assert (told.exit_code, told.stdout, told.stderr) == (0, "", "the shelf is empty\n")


def test_dropping_the_whole_shelf_asks_first(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/dead-letters", {"items": [LETTER]}, {"items": []}, {"items": [LETTER]}, {"items": []})
    daemon.on("DELETE /api/v1/dead-letters/17", {"outcome": "done"})

    refused = call("dead-letter", "drop", "--all", stdin=b"n\n")
    dropped = call("dead-letter", "drop", "--all", "--yes")

    assert refused.exit_code == 1
    assert dropped.stdout == "17: dropped\n"
    assert [name for name, _, _ in daemon.asked].count("DELETE /api/v1/dead-letters/17") == 1


def test_dropping_the_whole_shelf_where_nobody_can_answer_says_how_to(daemon: Daemon) -> None:
    daemon.on("GET /api/v1/dead-letters", {"items": [LETTER]}, {"items": []})

    told = call("dead-letter", "drop", "--all", stdin=b"")

    assert told.exit_code == 2
    assert "nothing was dropped" in told.stderr
    assert "--yes" in told.stderr
    assert not [name for name, _, _ in daemon.asked if name.startswith("DELETE")]


@pytest.mark.parametrize("words", [(), ("1", "--all"), ("--", "-1")])
def test_numbers_or_all_but_not_both_and_none_below_1(daemon: Daemon, words: tuple[str, ...]) -> None:
    assert call("dead-letter", "retry", *words).exit_code == 2
    assert daemon.asked == []
