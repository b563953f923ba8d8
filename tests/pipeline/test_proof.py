"""The proof finds what is planted, and nothing in what a service really did."""

import json
from collections.abc import Callable, Iterable
from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.domain.times import instant_of
from headrace.history.changelog import Line
from headrace.history.proof import LATEST, ProofReport
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.proof import CLOCKS_APART, checks, proof, violations
from headrace.spark.lake.schemas import CHANGES
from headrace.spark.lake.tables import changes
from tests.pipeline.stories import HOUR, SECOND, Story, at, true_history, write

Found = set[tuple[str, str]]


def recorded(lake: LakeFrames, lines: Iterable[Line]) -> LakeFrames:
    """Return *lake* with the table of changes that *lines* tell."""
    write(lake.files, lines)
    days = {date.fromisoformat(file.name[7:17]) for file in lake.files.list("raw/")}
    lake.write(changes(lake.raw(days)), CHANGES, days)
    return lake


def a_life(task: str) -> Story:
    """Tell of a bystander, and of *task* up to its second delivery."""
    story = Story()
    story.enqueue(f"bystander of {task}")
    story.wait(CLOCKS_APART.total_seconds() + 2)
    story.enqueue(task)
    story.dequeue(task)
    story.report(task, "fail", "ENQUEUED", error_type="E")
    story.dequeue(task)
    return story


Plant = Callable[[Story, str], Any]


def _forget_one(story: Story, task: str) -> None:
    story.report(task, "succeed", "SUCCEEDED")
    del story.lines[3]


def _record_another_story(story: Story, task: str) -> None:
    other = story.report(task, "succeed", "SUCCEEDED")
    story.lines.append({**other, "move": "heartbeat", "state_to": "INFLIGHT", "sequence": "99"})


def _use_a_lease_again(story: Story, task: str) -> None:
    story.enqueue(f"{task}, second")
    story.dequeue(f"{task}, second", lease_to=story.lines[4]["lease_to"])


def _take_early(story: Story, task: str) -> None:
    story.report(task, "fail", "ENQUEUED", due_to=story.now + HOUR)
    story.dequeue(task)


def _take_expired(story: Story, task: str) -> None:
    story.report(task, "fail", "ENQUEUED")
    story.dequeue(task, expires_at=story.now - SECOND)


def _leave_unfinished(story: Story, task: str) -> None:
    story.wait(3 * HOUR / SECOND)
    story.enqueue("later")


PLANTED: dict[str, Plant] = {
    "illegal_move": lambda story, task: story.record(task, "succeed", "ENQUEUED"),
    "missing_version": _forget_one,
    "missing_birth": lambda story, task: story.lines.pop(1),
    "forked_version": _record_another_story,
    "broken_chain": lambda story, task: story.report(task, "fail", "ENQUEUED", queue_from="other"),
    "double_lease": lambda story, task: story.dequeue(task, state_from="ENQUEUED", lease_to="x"),
    "lease_out_of_place": lambda story, task: story.report(task, "fail", "ENQUEUED", lease_to="x"),
    "reused_lease": _use_a_lease_again,
    "foreign_report": lambda story, task: story.report(task, "succeed", "SUCCEEDED", settled="x"),
    "early_reclaim": lambda story, task: story.report(task, "reclaim", "ENQUEUED"),
    "early_delivery": _take_early,
    "expired_delivery": _take_expired,
    "wrong_attempts": lambda story, task: story.report(task, "fail", "ENQUEUED", attempts_to=0),
    "unexplained_end": lambda story, task: story.report(task, "fail", "DEAD"),
    "overdue": _leave_unfinished,
}


@pytest.fixture(scope="module")
def planted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Prove one history with all that is planted, each in a task that is called after it."""
    lake = LakeFrames(spark, str(tmp_path_factory.mktemp("planted")))
    lines: list[Line] = []
    for kind, plant in PLANTED.items():
        story = a_life(kind)
        plant(story, kind)
        lines += story.lines
    reported = recorded(lake, lines).read(CHANGES)
    ends = [line["recorded_at"] for line in lines]
    found = violations(reported, first=instant_of(min(ends)), last=instant_of(max(ends))).collect()
    return {(row["kind"], row["task_id"]) for row in found}


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.gate
def test_a_planted_violation_is_found_with_its_task(planted: Found, kind: str) -> None:
    assert (kind, kind) in planted


@pytest.mark.gate
def test_who_did_nothing_wrong_is_not_accused(planted: Found) -> None:
    assert not [task for _, task in planted if task.startswith(("bystander", "later"))]


def test_every_kind_has_a_planted_violation() -> None:
    assert {*checks(), "overdue", "reused_lease"} == set(PLANTED)


def test_a_true_history_with_faults_shows_nothing(lake: LakeFrames) -> None:
    service = true_history(lake.files, seed=7)

    report = proof(recorded(lake, ()))

    assert report.changes > 500
    assert (report.violations, report.holds) == ({}, True), service
    moves = {row["move"] for row in lake.read(CHANGES).select("move").distinct().collect()}
    assert moves >= {"enqueue", "dequeue", "fail", "reclaim", "release", "move", "restart", "run"}


def test_a_history_that_begins_in_the_middle_is_none_of_its_fault(lake: LakeFrames) -> None:
    story = a_life("t1")
    middle = [line for line in story.lines if line["at"] >= story.lines[2]["at"]]

    assert proof(recorded(lake, middle)).holds


def test_a_task_born_before_midnight_by_the_other_clock_is_not_accused(lake: LakeFrames) -> None:
    story = Story()
    ahead = {"at": story.now + 3 * SECOND, "created_at": story.now + 3 * SECOND}
    story.enqueue("t1", **ahead, recorded_at=story.now - SECOND)
    story.enqueue("first of the day")
    story.wait(3)
    story.dequeue("t1")

    assert proof(recorded(lake, story.lines), since=at().date()).violations == {}


def test_the_report_is_kept_as_json_with_examples(lake: LakeFrames) -> None:
    story = a_life("t1")
    story.report("t1", "succeed", "SUCCEEDED", settled="other")
    proof(recorded(lake, story.lines), since=at(0).date(), now=at(30))

    body = json.loads(lake.files.get(LATEST) or b"")
    assert body["holds"] is False
    assert body["violations"] == {"foreign_report": 1}
    (example,) = body["examples"]["foreign_report"]
    assert (example["task_id"], example["version"], example["queue"]) == ("t1", 5, "mail")
    assert example["detail"] == "from mail/INFLIGHT to mail/SUCCEEDED after mail/INFLIGHT/4"
    assert body["first"] == "2026-11-21T00:00:00.000000Z"
    names = [file.name for file in lake.files.list("reports/proof/")]
    assert names == ["reports/proof/2026-11-22T06-00-00.json", LATEST]
    read = ProofReport.of(lake.files.get(LATEST) or b"")
    assert (read.made_at, read.since, read.live) == (at(30), at(0).date(), False)
    assert (read.first, read.tasks, read.changes) == (at(0), 2, len(story.lines))
    assert read.violations == body["violations"]
    assert [one.task_id for one in read.examples["foreign_report"]] == ["t1"]
