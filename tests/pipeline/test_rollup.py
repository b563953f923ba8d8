"""From raw lines to tables: golden stories, late and duplicate lines, runs repeated."""

import dataclasses
from datetime import date, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.domain.errors import Conflict, InvalidRequest
from headrace.history.tally import Histogram
from headrace.spark.lake import rollup as rollups
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.rollup import STATE, Rolled, rollup
from headrace.spark.lake.schemas import (
    ATTEMPTS,
    CHANGES,
    FAILURES,
    QUEUE_MINUTES,
    TABLES,
    TASKS,
    Table,
)
from tests.pipeline.harness import Again
from tests.pipeline.stories import DAY, HOUR, MINUTE, SECOND, START, Story, write

TODAY = date(2026, 11, 21)


def rolled(lake: LakeFrames, **how: Any) -> Rolled:
    return rollup(lake, today=TODAY, **how)


def rows(lake: LakeFrames, table: Table, *queues: str) -> list[dict[str, Any]]:
    """Return the rows of some *queues*, or all, by their key."""
    found = [row.asDict() for row in lake.read(table).collect()]
    if queues:
        found = [row for row in found if row["queue"] in queues]
    return sorted(found, key=lambda row: [str(row[name]) for name in table.key])


def everything(lake: LakeFrames) -> dict[str, list[dict[str, Any]]]:
    return {table.name: rows(lake, table) for table in TABLES}


def a_day() -> Story:
    """Tell of four tasks: one succeeds at the second try, one dies, one moves on, one waits."""
    story = Story()
    story.enqueue("t1", payload_bytes=10)
    story.dequeue("t1")
    story.wait(2)
    story.report(
        "t1",
        "fail",
        "ENQUEUED",
        error_kind="failed",
        error_type="Timeout",
        error_message="no answer after 31 s",
        due_to=story.now + 60 * SECOND,
    )
    story.wait(60)
    story.dequeue("t1")
    story.wait(4)
    story.report("t1", "succeed", "SUCCEEDED")
    story.enqueue("t2")
    story.dequeue("t2")
    story.report(
        "t2",
        "fail",
        "DEAD",
        dead_reason="rejected",
        error_kind="failed",
        error_type="Timeout",
        error_message="no answer after 29 s",
    )
    story.enqueue("t3")
    story.dequeue("t3")
    story.report("t3", "move", "ENQUEUED", queue_to="next", hop_to=1, attempts_to=0)
    story.enqueue("t4")
    return story


def an_old_task() -> Story:
    """Tell of one that waits long and of another that comes later, both taken in the end."""
    story = Story("patience")
    story.enqueue("old").update()
    story.wait(5 * 60 - 1)
    story.enqueue("new")
    story.wait(5 * 60 - 1)
    story.dequeue("old")
    story.dequeue("new")
    return story


def two_lives() -> Story:
    """Tell of a task that is deleted and enqueued again under its id."""
    story = Story("again")
    story.enqueue("cat")
    story.record("cat", "delete", None)
    story.enqueue("cat")
    return story


LINES = [
    {**line, "shard": story.queue}
    for story in (a_day(), an_old_task(), two_lives())
    for line in story.lines
]


@pytest.fixture(scope="module")
def day(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakeFrames:
    """Give the lake in which all these stories were rolled up."""
    lake = LakeFrames(spark, str(tmp_path_factory.mktemp("day")))
    write(lake.files, LINES)
    assert rolled(lake) == Rolled((TODAY,), lines=len(LINES), changes=len(LINES))
    return lake


@pytest.mark.gate
def test_a_story_becomes_tables(day: LakeFrames) -> None:
    story = a_day()
    attempts = rows(day, ATTEMPTS, "mail")
    assert [
        (row["task_id"], row["attempt"], row["outcome"], row["wait_micros"], row["run_micros"])
        for row in attempts
    ] == [
        ("t1", 1, "failed", SECOND, 3 * SECOND),
        ("t1", 2, "succeeded", 3 * SECOND - 2 * SECOND, 5 * SECOND),
        ("t2", 1, "dead", SECOND, SECOND),
        ("t3", 1, "moved", SECOND, SECOND),
    ]
    assert attempts[3]["to_queue"] == "next"
    lives = rows(day, TASKS, "mail")
    assert [(row["task_id"], row["outcome"], row["attempts"]) for row in lives] == [
        ("t1", "succeeded", 2),
        ("t2", "dead", 1),
        ("t3", "moved", 1),
    ]
    assert lives[0]["total_micros"] == (story.lines[4]["at"] - START)
    assert lives[1]["dead_reason"] == "rejected"
    (failure,) = rows(day, FAILURES)
    assert (failure["n"], failure["dead"], failure["task_ids"]) == (2, 1, ["t1", "t2"])
    assert failure["sample"] == "no answer after 31 s"
    first = day.read(CHANGES).where("task_id = 't1' AND version = 2").collect()[0]
    assert (first.move, first.state_from, first.state_to) == ("dequeue", "ENQUEUED", "INFLIGHT")
    assert first["dt"] == TODAY


@pytest.mark.gate
def test_minutes_have_counts_levels_and_histograms(day: LakeFrames) -> None:
    found = rows(day, QUEUE_MINUTES, "mail", "next")
    by_place = {(row["queue"], row["minute"].minute): row for row in found}
    first, second = by_place["mail", 0], by_place["mail", 1]
    names = ("enqueued", "started", "succeeded", "failed", "moved", "dead")
    assert [first[name] for name in names] == [1, 1, 0, 1, 0, 0]
    assert [second[name] for name in names] == [3, 3, 1, 1, 1, 1]
    assert (first["backlog"], first["inflight"]) == (1, 0)
    assert (second["backlog"], second["inflight"]) == (1, 0)
    assert Histogram(first["wait"]).percentile(0.5) == pytest.approx(1, rel=0.025)
    assert Histogram(second["run"]).count == 3
    assert first["run_max_micros"] == 3 * SECOND
    assert by_place["next", 1]["enqueued"] == by_place["next", 1]["backlog"] == 1


def test_the_oldest_ready_task_is_told_by_those_who_leave_later(day: LakeFrames) -> None:
    ages = [row["oldest_ready_micros"] for row in rows(day, QUEUE_MINUTES, "patience")]
    assert ages == [MINUTE, 6 * MINUTE, 0]


def test_a_deleted_task_enqueued_again_under_its_id_has_two_lives(day: LakeFrames) -> None:
    assert [row["outcome"] for row in rows(day, TASKS, "again")] == ["deleted"]
    assert rows(day, QUEUE_MINUTES, "again")[-1]["backlog"] == 1


def test_lines_that_come_twice_or_in_any_order_change_nothing(lake: LakeFrames) -> None:
    lines = a_day().lines
    write(lake.files, reversed(lines))
    write(lake.files, lines[3:9])
    write(lake.files, lines[:5])

    reported = rolled(lake)

    assert (reported.changes, reported.duplicates) == (len(lines), 11)
    assert len(rows(lake, CHANGES)) == len(lines)


def test_a_run_may_be_repeated_and_a_killed_one_run_again(day: LakeFrames, again: Again) -> None:
    lake, once = again(day), everything(day)

    assert rolled(lake) == Rolled(())
    lake.files.put(STATE, b'{"days": {}}')  # as if it had been killed before it was done

    assert rolled(lake).changes == len(once["changes"])
    assert everything(lake) == once
    assert rolled(lake, everything=True).days == (TODAY,)
    assert everything(lake) == once


class RollupKilled(Exception):
    """Stands for a process that ends in the middle."""


def test_a_run_that_ends_in_the_middle_is_made_good_by_the_next(
    day: LakeFrames, again: Again
) -> None:
    lake, steps = again(day), list[str]()
    late = Story("late")
    late.enqueue("late")
    late.dequeue("late")
    late.report("late", "succeed", "SUCCEEDED")
    write(lake.files, late.lines)

    def say(text: str) -> None:
        steps.append(text)
        if len(steps) > 3:
            raise RollupKilled

    with pytest.raises(RollupKilled):
        rolled(lake, say=say)
    reported = rolled(lake)

    assert (reported.days, reported.changes) == ((TODAY,), len(LINES) + 3)
    before, after = everything(day), everything(lake)
    for table in (ATTEMPTS, TASKS):
        new = [row["queue"] for row in after[table.name] if row not in before[table.name]]
        assert new == ["late"]
        assert len(after[table.name]) == len(before[table.name]) + 1
    new_minutes = [row for row in after[QUEUE_MINUTES.name] if row["queue"] == "late"]
    assert [row["enqueued"] for row in new_minutes] == [1]
    assert len(after[QUEUE_MINUTES.name]) == len(before[QUEUE_MINUTES.name]) + 1


def test_a_raw_file_cut_short_is_named(day: LakeFrames, again: Again) -> None:
    lake = again(day)
    (raw,) = lake.files.list("raw/")
    name = f"raw/dt={TODAY}/hh=00/cut short.json.gz"
    lake.files.put(name, (lake.files.get(raw.name) or b"")[:-20])

    with pytest.raises(InvalidRequest, match=f"^{name} cannot be read"):
        rolled(lake)


def test_late_lines_bring_their_day_up_to_date_and_the_levels_after_it(
    day: LakeFrames, again: Again
) -> None:
    lake, later, late = again(day), Story(), Story()
    later.now = START + DAY
    later.enqueue("t5")
    late.now = START + 100 * SECOND
    late.enqueue("late")
    write(lake.files, later.lines)
    rolled(lake)
    before = rows(lake, QUEUE_MINUTES, "mail")
    write(lake.files, [{**late.lines[0], "sequence": "900"}])

    reported = rolled(lake)

    assert reported.days == (TODAY,)
    after = rows(lake, QUEUE_MINUTES, "mail")
    last = max(row["minute"] for row in before)
    levels = [
        next(row["backlog"] for row in some if row["minute"] == last) for some in (before, after)
    ]
    assert levels == [2, 3]


def test_a_day_rolled_up_hour_by_hour_is_the_same_as_at_once(
    lake: LakeFrames, tmp_path: Any
) -> None:
    story = a_day()
    story.now = START + HOUR
    story.dequeue("t4")
    story.now = START + 2 * HOUR
    story.enqueue("t5")
    story.report("t4", "fail", "DEAD", dead_reason="rejected", error_type="E", error_message="e")
    whole = dataclasses.replace(lake, address=str(tmp_path / "whole"))
    write(whole.files, story.lines)
    rolled(whole)
    for hour in range(3):
        write(lake.files, [one for one in story.lines if (one["at"] - START) // HOUR == hour])
        rolled(lake)

    assert everything(lake) == everything(whole)


def test_of_two_rollups_at_once_the_second_to_write_is_refused(
    day: LakeFrames, again: Again
) -> None:
    lake, inside = again(day), list[Rolled]()
    story = Story("late")
    story.enqueue("late")
    write(lake.files, story.lines)

    def say(_: str) -> None:
        if not inside:
            inside.append(Rolled(()))
            inside[0] = rolled(lake)

    with pytest.raises(Conflict, match=r"^another job has written the table changes [^\n]*$"):
        rolled(lake, say=say)

    once = everything(lake)
    assert len(once["changes"]) == inside[0].changes
    assert rolled(lake, everything=True).days == (TODAY,)
    assert everything(lake) == once


def test_old_versions_are_removed_and_what_is_read_stays(
    day: LakeFrames, again: Again, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, later, once = again(day), Story(), everything(day)
    rolled(lake, everything=True)
    later.now = START + DAY
    later.enqueue("t5")
    write(lake.files, later.lines)
    monkeypatch.setattr(rollups, "VERSIONS_KEPT", timedelta(0))
    rollup(lake, today=TODAY + timedelta(days=1))

    for table in (CHANGES, ATTEMPTS):
        of_day = lake.files.list(f"tables/{table.name}/data/")
        assert len([one for one in of_day if f"day={TODAY}" in one.name]) == len(
            [file for file in lake.log.files(table) if file.day == TODAY]
        )
    assert rows(lake, ATTEMPTS) == once[ATTEMPTS.name]


def test_an_illegible_line_is_counted_and_left_out(lake: LakeFrames) -> None:
    (line,) = Story().lines or [Story().enqueue("t1")]
    nameless = {name: value for name, value in line.items() if name != "task_id"}
    write(lake.files, [line, {**nameless, "sequence": "2"}])

    reported = rolled(lake)

    assert (reported.lines, reported.changes, reported.illegible, reported.duplicates) == (
        2,
        1,
        1,
        0,
    )
