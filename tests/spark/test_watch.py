"""The watch over ledgers that grow: each round is looked at with a clock of ours. And its restarts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from delaybridge.spark_jobs.columns import UnusableInput
from delaybridge.spark_jobs.hadoop import Folder
from delaybridge.spark_jobs.watching import telling
from delaybridge.spark_jobs.watching.arguments import Arguments
from delaybridge.spark_jobs.watching.rounds import Rounds
from spark.ledgers import T0, Bridge, write_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@dataclass
class Scene:
    """Two bridges that write bit by bit, each into a folder of its own, and whoever watches them."""

    spark: SparkSession
    folder: Path
    now: int = T0
    files: int = 0
    rounds: Rounds | None = None
    written: dict[str, int] = field(default_factory=dict)
    checkpoint: str = "checkpoint"

    def __post_init__(self) -> None:
        self.one, self.two = Bridge("one"), Bridge("two", "bills")

    @property
    def arguments(self) -> Arguments:
        return Arguments(
            ledgers=tuple(sorted(map(str, self.folder.glob("ledger-*")))),
            checkpoint=str(self.folder / self.checkpoint),
            since=T0 - 60_000,
            sla=1_000,
            grace=500,
            silent=60_000,
            alerts=self.folder / "alerts.jsonl",
        )

    def flush(self, bridge: Bridge, mark: int | None = None) -> None:
        """What the bridge has not written yet, and its mark."""
        root = self.folder / f"ledger-{bridge.name}"
        rows = bridge.rows[self.written.get(bridge.name, 0) :]
        if rows:
            self.files += 1
            write_ledger(root, f"{bridge.name}-{self.files}", rows)
            self.written[bridge.name] = len(bridge.rows)
            (root / "date=2025-06-15" / ".unfinished.parquet.tmp").write_bytes(b"PAR1")
        if mark is not None:
            (root / "_reach").mkdir(exist_ok=True)
            told = {"bridge": bridge.name, "sequence": self.written[bridge.name], "at_ms": mark}
            (root / "_reach" / f"{bridge.name}.json").write_text(json.dumps(told))

    def look(self, now: int) -> list[dict[str, Any]]:
        """One more round, at that instant; what it told."""
        self.now = now
        before = len(self.told())
        self.rounds = self.rounds or Rounds(self.spark, self.arguments, lambda: self.now)
        self.rounds.run()
        return self.told()[before:]

    def restart(self, checkpoint: str = "checkpoint") -> None:
        self.rounds = None
        self.checkpoint = checkpoint

    def told(self) -> list[dict[str, Any]]:
        file = self.folder / "alerts.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def counts(self) -> dict[str, dict[str, int]]:
        told = json.loads((self.folder / "checkpoint" / "counts.json").read_text())
        return {row["destination"]: row for row in told["destinations"]}


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Scene:
    return Scene(spark, tmp_path)


def _brief(lines: list[dict[str, Any]]) -> list[tuple[str, str, str | None]]:
    return [(line["event"], line["kind"], line.get("id") or line["bridge"]) for line in lines]


def test_what_is_due_is_alerted_once_when_all_ledgers_reach_beyond_and_its_end_is_told_once_also_after_restarts(scene: Scene) -> None:
    one, two = scene.one, scene.two
    one.both("fine", T0)
    one.scheduled("stuck", T0 + 100)
    one.scheduled("late", T0 + 600)
    one.row("scheduled", T0, "tomorrow", T0 + 86_400_000)
    two.both("fine, too", T0)
    scene.flush(one, T0 + 2_500)
    scene.flush(two, T0 + 1_599)

    too_early = scene.look(T0 + 3_000)
    scene.flush(two, T0 + 1_600)
    alert = scene.look(T0 + 3_000)
    scene.restart()
    again = scene.look(T0 + 4_000)
    one.delivered("stuck", T0 + 100, 4_200)
    one.delivered("late", T0 + 600, 3_800)
    scene.flush(one, T0 + 5_000)
    scene.flush(two, T0 + 5_000)
    end = scene.look(T0 + 5_000)
    scene.restart()

    assert (too_early, again) == ([], [])
    assert _brief(alert) == [("alert", "not_delivered", "stuck")]
    assert _brief(end) == [("resolved", "not_delivered", "stuck"), ("alert", "late", "late")]
    assert [(line["lateness_ms"], line.get("detail")) for line in end] == [(4_200, "delivered"), (3_800, None)]
    assert scene.look(T0 + 6_000) == []
    assert [line["number"] for line in scene.told()] == [1, 2, 3]


def test_what_one_bridge_took_in_and_another_delivers_is_no_alert_and_is_one_until_it_does(scene: Scene) -> None:
    one, two = scene.one, scene.two
    for id_, due in (("handed on", T0), ("handed on late", T0 + 1)):
        one.scheduled(id_, due)
    two.delivered("handed on", T0, destination="orders")
    scene.flush(one, T0 + 5_000)
    scene.flush(two, T0 + 5_000)

    alert = scene.look(T0 + 5_000)
    two.delivered("handed on late", T0 + 1, 6_000, destination="orders")
    scene.flush(two, T0 + 7_000)
    end = scene.look(T0 + 7_000)

    assert [(line["event"], line["kind"], line["id"], line["bridge"]) for line in [*alert, *end]] == [
        ("alert", "not_delivered", "handed on late", "one"),
        ("resolved", "not_delivered", "handed on late", "one"),
    ]
    assert end[0]["lateness_ms"] == 6_000


def test_a_message_that_was_rescheduled_and_is_not_delivered_is_alerted_by_its_new_due_time(scene: Scene) -> None:
    scene.one.scheduled("moved", T0 + 1)
    scene.two.row("replaced", T0, "moved", T0 + 1, destination="orders")
    scene.two.row("scheduled", T0, "moved", T0 + 2_000, destination="orders")
    scene.flush(scene.one, T0 + 9_000)
    scene.flush(scene.two, T0 + 9_000)

    [alert] = scene.look(T0 + 9_000)

    assert (alert["id"], alert["bridge"], alert["due_time"]) == ("moved", "two", "2025-06-15T15:00:02.000Z")


@pytest.mark.parametrize("file", ["state.json", "told.json"])
def test_a_watch_that_dies_in_the_middle_of_a_batch_loses_no_alert_and_tells_none_twice(
    scene: Scene, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.one.both("late", T0, 5_000)
    scene.one.both("fine", T0 + 1)
    scene.flush(scene.one, T0 + 6_000)
    scene.rounds = Rounds(scene.spark, scene.arguments, lambda: scene.now)
    with monkeypatch.context() as broken:
        replace_file = Folder.replace
        broken.setattr(Folder, "replace", lambda folder, name, text: _power_cut() if name == file else replace_file(folder, name, text))
        with pytest.raises(OSError, match="power cut"):
            scene.look(T0 + 6_000)

    scene.restart()
    scene.look(T0 + 7_000)

    assert _brief(scene.told()) == [("alert", "late", "late")]
    assert scene.counts()["orders"]["delivered"] == 2


def test_a_watch_whose_checkpoint_another_one_has_used_ends_before_it_forgets_what_that_one_read(scene: Scene) -> None:
    scene.one.scheduled("m", T0)
    scene.flush(scene.one)
    scene.look(T0)
    first = scene.rounds
    assert first is not None
    scene.one.delivered("m", T0)
    scene.flush(scene.one, T0 + 9_000)
    scene.restart()

    assert scene.look(T0 + 9_000) == []
    with pytest.raises(UnusableInput, match="another watch is at work"):
        first.run()
    assert scene.look(T0 + 10_000) == []


def test_watches_that_tell_to_one_file_lose_none_of_their_alerts_and_tell_none_twice(scene: Scene) -> None:
    scene.one.both("late", T0, 5_000)
    scene.one.scheduled("stuck", T0 + 1)
    scene.flush(scene.one, T0 + 6_000)
    first = scene.look(T0 + 6_000)
    scene.restart("another")
    second = scene.look(T0 + 7_000)
    scene.restart("checkpoint")
    (scene.folder / "checkpoint" / "told.json").unlink()  # killed before it was noted
    again = scene.look(T0 + 8_000)
    scene.one.delivered("stuck", T0 + 1, 9_000)
    scene.flush(scene.one, T0 + 10_000)
    end = scene.look(T0 + 10_000)

    assert _brief(first) == _brief(second) == [("alert", "late", "late"), ("alert", "not_delivered", "stuck")]
    assert again == []
    assert _brief(end) == [("resolved", "not_delivered", "stuck")]
    assert [line["number"] for line in scene.told()] == [1, 2, 1, 2, 3]
    one, other = (line["watch"] for line in (first[0], second[0]))
    assert [line["watch"] for line in scene.told()] == [one, one, other, other, one] != [one] * 5


def test_a_checkpoint_and_a_file_without_a_watchs_name_go_on_as_they_were(scene: Scene) -> None:
    scene.one.scheduled("stuck", T0)
    scene.flush(scene.one, T0)
    scene.look(T0)
    state = scene.folder / "checkpoint" / "state.json"
    state.write_text(json.dumps({name: value for name, value in json.loads(state.read_text()).items() if name != "watch"}))
    scene.restart()
    scene.flush(scene.one, T0 + 2_000)
    first = scene.look(T0 + 2_000)
    scene.restart()
    (scene.folder / "checkpoint" / "told.json").unlink()

    assert scene.look(T0 + 3_000) == []
    assert _brief(first) == [("alert", "not_delivered", "stuck")]
    assert "watch" not in first[0]


def test_a_file_is_read_back_to_the_watchs_last_line_over_anybodys_lines_and_an_unfinished_one(tmp_path: Path) -> None:
    file = tmp_path / "alerts.jsonl"
    others = "".join(f'{{"number":{number},"watch":"other"}}\n' for number in range(100_000))
    file.write_text(f'{{"number":7,"watch":"mine"}}\nnot JSON: mine\n\n{others}{{"number":8,"wat')

    telling._append(file, "mine", [(7, "told before"), (8, "new")])
    telling._append(file, "", [(1, "of a watch without a name")])

    assert file.read_text().endswith(f"{others}new\nof a watch without a name\n")


def test_of_many_alerts_those_that_went_out_are_noted_in_portions_so_that_a_watch_that_dies_among_them_goes_on_there(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        scene.one.scheduled(f"stuck {number}", T0 + number)
    scene.flush(scene.one, T0 + 6_000)
    monkeypatch.setattr(telling, "PORTION", 3)
    notes: list[str] = []
    replace_file = Folder.replace

    def replace_or_die(folder: Folder, name: str, text: str) -> None:
        notes.extend([text] if name == "told.json" else [])
        _power_cut() if len(notes) == 2 else replace_file(folder, name, text)

    with monkeypatch.context() as broken:
        broken.setattr(Folder, "replace", replace_or_die)
        with pytest.raises(OSError, match="power cut"):
            scene.look(T0 + 6_000)
    before = [line["number"] for line in scene.told()]
    scene.restart()
    scene.look(T0 + 7_000)

    assert notes == ['{"number": 3}', '{"number": 6}']
    assert before == [1, 2, 3, 4, 5, 6]
    assert [(line["number"], line["id"]) for line in scene.told()] == [(number + 1, f"stuck {number}") for number in range(7)]


def _power_cut() -> None:
    raise OSError("power cut")


def test_a_bridge_of_which_nothing_is_heard_is_an_alert_with_what_it_owes_until_it_is_heard_again(scene: Scene) -> None:
    scene.one.row("scheduled", T0, "owed", T0 + 10_000)
    scene.one.row("scheduled", T0, "later", T0 + 400_000)
    scene.flush(scene.one, T0 + 5_000)

    told = [scene.look(T0 + 65_000), scene.look(T0 + 65_001), scene.look(T0 + 90_000)]
    scene.flush(scene.one, T0 + 90_000)
    back = scene.look(T0 + 91_000)

    assert [_brief(lines) for lines in told] == [[], [("alert", "bridge_silent", "one")], []]
    assert (told[1][0]["overdue"], told[1][0]["reaches"]) == (1, "2025-06-15T15:00:05.000Z")
    assert _brief(back) == [("resolved", "bridge_silent", "one"), ("alert", "not_delivered", "owed")]


def test_while_the_files_of_a_bridge_that_has_a_mark_are_on_their_way_nothing_is_called_undelivered(scene: Scene) -> None:
    scene.one.scheduled("delivered by two", T0)
    scene.flush(scene.one, T0 + 60_000)
    (scene.folder / "ledger-one" / "_reach" / "two.json").write_text(json.dumps({"bridge": "two", "sequence": 1, "at_ms": T0 + 60_000}))

    assert _brief(scene.look(T0 + 61_000)) == [("alert", "bridge_silent", "two")]


def test_a_ledger_whose_old_days_were_removed_is_watched_from_where_it_is_whole(scene: Scene) -> None:
    one = scene.one
    for number in range(20):
        one.row("scheduled", T0 + number, f"m-{number}", T0 + 500_000)
    one.scheduled("stuck", T0 + 200_000)
    one.row("scheduled", T0 + 190_000, "last", T0 + 900_000)
    one.rows = [row for row in one.rows if row.sequence in {3, 4, 7, 12} or row.sequence > 15]
    scene.flush(one)
    scene.written["one"] = 22
    scene.flush(one, T0 + 300_000)

    found = scene.look(T0 + 300_000)

    assert _brief(found) == [("alert", "not_delivered", "stuck")]
    assert scene.rounds
    assert [(reach.first, reach.hole, reach.reaches_ms) for reach in scene.rounds.reaches] == [(16, None, T0 + 300_000)]


def test_a_first_look_into_a_copy_that_is_still_running_takes_nothing_from_what_comes_after_it(scene: Scene) -> None:
    one = scene.one
    for number in range(1, 41):
        one.row("scheduled", T0 + number * 10_000, f"m-{number}", T0 + (100_000 if number == 7 else 900_000))
    parts = [one.rows[4:10] + one.rows[20:30], one.rows[:4] + one.rows[10:20] + one.rows[30:]]
    whole, one.rows = one.rows, parts[0]
    scene.flush(one)

    first = scene.look(T0 + 310_000)
    one.rows, scene.written["one"] = parts[0] + parts[1], len(parts[0])
    scene.flush(one, T0 + 401_000)
    second = scene.look(T0 + 401_000)

    assert scene.rounds
    assert [(reach.rows, reach.first, reach.hole, reach.reaches_ms) for reach in scene.rounds.reaches] == [
        (len(whole), 1, None, T0 + 401_000)
    ]
    assert _brief([*first, *second]) == [("alert", "not_delivered", "m-7")]


def test_of_a_ledger_without_its_beginning_rows_may_come_in_any_order_and_a_lost_file_behind_that_is_a_hole(scene: Scene) -> None:
    one = scene.one
    for number in range(1, 41):
        one.row("scheduled", T0 + number * 10_000, f"m-{number}", T0 + 900_000)
    ragged = [row for row in one.rows if row.sequence in {9, 11, 13, 14, 15}]
    later = [row for row in one.rows if row.sequence > 15 and row.sequence != 33]
    one.rows = later[5:]
    scene.flush(one)
    scene.look(T0 + 401_000)
    one.rows = later[5:] + ragged + later[:5]
    scene.flush(one)
    scene.restart()
    scene.look(T0 + 402_000)

    assert scene.rounds
    assert [(reach.first, reach.hole) for reach in scene.rounds.reaches] == [(13, 33)]


def test_every_outcome_is_counted_by_destination_and_malformed_rows_are_set_aside_and_told(scene: Scene) -> None:
    one = scene.one
    one.both("fine", T0)
    for event in ("cancelled", "replaced", "expired", "dead_lettered"):
        one.scheduled(event, T0 + 100_000)
        one.row(event, T0 + (0 if event in {"cancelled", "replaced"} else 100_100), event, T0 + 100_000)
    one.both("replaced", T0 + 200_000)
    one.row("scheduled", T0, "ahead", T0 + 900_000)
    one.both("before the watch began", T0 - 60_001)
    one.row("eaten", T0, "odd", T0)  # type: ignore[arg-type]
    one.both("behind the odd one", T0 - 60_002)
    scene.flush(one, T0 + 201_000)

    [alert] = scene.look(T0 + 201_000)
    assert scene.rounds
    counted = scene.counts()["orders"]
    [aside] = scene.spark.read.parquet(str(scene.folder / "checkpoint" / "malformed")).collect()

    outcomes = {"delivered": 2, "cancelled": 1, "replaced": 1, "expired": 1, "dead_lettered": 1, "pending": 1}
    assert {name: counted[name] for name in ("scheduled", "due", *outcomes)} == {"scheduled": 7, "due": 4, **outcomes}
    assert (alert["kind"], aside["problem"]) == ("malformed", "unknown event eaten")
    assert [(one.hole, one.reaches_ms) for one in scene.rounds.reaches] == [(None, T0 + 201_000)]


def test_rows_that_stand_twice_make_an_answer_impossible(scene: Scene) -> None:
    scene.one.both("fine", T0)
    scene.flush(scene.one)
    write_ledger(scene.folder / "ledger-one", "a-copy", scene.one.rows)

    with pytest.raises(UnusableInput, match="the ledger of bridge 'one': rows from number 1 on stand twice"):
        scene.look(T0)


def test_a_checkpoint_belongs_to_the_ledgers_that_it_was_made_for(scene: Scene) -> None:
    scene.one.both("fine", T0)
    scene.flush(scene.one)
    Rounds(scene.spark, scene.arguments, lambda: T0)
    scene.two.both("fine", T0)
    scene.flush(scene.two)

    with pytest.raises(UnusableInput, match=r"belongs to a watch over .*ledger-one: give another --checkpoint"):
        Rounds(scene.spark, scene.arguments, lambda: T0)
