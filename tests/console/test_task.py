"""The page of one task: what happened to it, and what to do about it."""

from dataclasses import replace

import pytest

from console.chalicelib import story
from headrace.domain.access import Role
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.ops.delivery.reports import ReportStatus, WorkerError
from tests.console.conftest import Browser


def test_a_dead_task_says_what_it_died_of_and_how_it_runs_again(admin: Browser) -> None:
    admin.queue("mail")
    task_id = admin.kill("mail", message="no such mailbox")
    page = admin.get(f"/console/tasks/{task_id}").page

    why = page.one("section", **{"aria-labelledby": "why"})
    assert "The task is DEAD (rejected) after attempt 1: TimeoutError: no such mailbox." in why.text
    [restart] = why.all("a")
    assert restart.attributes["href"] == f"/console/tasks/{task_id}/restart"
    viewer = admin.as_role(Role.VIEWER).get(f"/console/tasks/{task_id}").page
    seen = viewer.one("section", **{"aria-labelledby": "why"})
    assert "no such mailbox" in seen.text
    assert seen.all("a") == []


TWICE = RetryStrategy(kind=Backoff.FIXED, base_seconds=20, jitter=0, max_retries=3)


def worked(admin: Browser) -> str:
    """Let a task fail twice in one queue, be moved to another and succeed there; return its id."""
    admin.queue("mail", retry_strategy=TWICE)
    admin.queue("sms", retry_strategy=TWICE)
    [task_id] = admin.put("mail", delay_in_seconds=5)
    for seconds in (8, 25):
        admin.clock.forward(seconds)
        [task] = admin.take("mail", worker=f"ada:{seconds}")
        admin.clock.forward(2)
        admin.say(task, ReportStatus.FAILED, error=WorkerError("TimeoutError", "no answer", ""))
    admin.clock.forward(1)
    admin.use.bulk.by_ids("mail", BulkAction.MOVE, [task_id], to_queue="sms")
    admin.clock.forward(60)
    [task] = admin.take("sms", worker="eve:1")
    admin.clock.forward(4)
    admin.say(task, ReportStatus.SUCCEEDED)
    return task_id


def lines(browser: Browser, task_id: str) -> list[str]:
    page = browser.get(f"/console/tasks/{task_id}").page
    return [each.text for each in page.one("ol", class_="timeline").all("li")]


def test_why_it_is_not_running_comes_before_the_lifecycle(admin: Browser) -> None:
    admin.queue("mail")
    shown = admin.get(f"/console/tasks/{admin.kill('mail')}")

    assert 0 < shown.body.index('id="why"') < shown.body.index('class="diagram"')


def test_moves_over_queues_are_one_story_and_each_attempt_says_where_it_was(admin: Browser) -> None:
    task_id = worked(admin)

    told = lines(admin, task_id)
    assert told[0].startswith("1. succeeded in sms now , ran 4 s after waiting 1 min , by")
    assert told[1].startswith("moved from mail to sms")
    assert told[2].startswith("2. failed in mail 1 min ago , ran 2 s after waiting 25 s")
    assert told[3].startswith("1. failed in mail")
    assert "ran 2 s after waiting 8.0 s , by ada:8" in told[3]
    assert len(told) == 4


def test_waits_runs_and_backoffs_are_drawn_to_scale(admin: Browser) -> None:
    task = admin.use.tasks.get(worked(admin))
    strip = story.strip(task, admin.clock(), story.events(task))

    assert strip is not None
    assert strip.length == pytest.approx(102, abs=0.1)
    seconds: dict[str, float] = {}
    for one in strip.stretches:
        length = one.width / strip.width * strip.length
        seconds[one.kind] = seconds.get(one.kind, 0) + length
    assert seconds["run-failed"] == pytest.approx(4, abs=0.3)
    assert seconds["run-succeeded"] == pytest.approx(4, abs=0.3)
    assert seconds["backoff"] == pytest.approx(25 + 19, abs=0.3)
    assert seconds["wait"] == pytest.approx(8 + 1 + 41, abs=0.3)
    assert [one.queue for one in strip.queues] == ["mail", "sms"]
    assert strip.queues[0].width + strip.queues[1].width == pytest.approx(strip.width, abs=0.5)
    assert "attempt 2 ran 2 s: failed" in strip.words
    page = admin.get(f"/console/tasks/{task.id}").page
    assert page.one("svg", class_="life").attributes["aria-label"] == strip.words
    assert len(page.one("svg", class_="life").all("title")) == len(strip.stretches) + 2


def test_a_queue_of_others_is_not_named_in_the_story(admin: Browser) -> None:
    task_id = worked(admin)
    theirs = admin.as_role(Role.VIEWER, "sms")

    told = lines(theirs, task_id)
    assert told[1].startswith("moved from another queue to sms")
    assert "failed in another queue" in told[2]
    assert "mail" not in theirs.get(f"/console/tasks/{task_id}").text


def test_a_restart_begins_the_attempts_anew_and_is_told(admin: Browser) -> None:
    admin.queue("mail")
    task_id = admin.kill("mail")
    admin.clock.forward(60)
    admin.use.bulk.by_ids("mail", BulkAction.RESTART, [task_id])
    admin.clock.forward(5)
    [task] = admin.take("mail")
    admin.clock.forward(3)
    [first, second, third] = lines(admin, task_id)

    assert first.startswith("1. running since 3 s ago , after waiting 5.0 s")
    assert second.startswith("restarted 8 s ago")
    assert third.startswith("1. failed")
    error = WorkerError("TimeoutError", "no answer", "")
    admin.say(task, ReportStatus.FAILED, error=error, retryable=False)
    admin.clock.forward(1)
    admin.use.bulk.by_ids("mail", BulkAction.RESTART, [task_id])
    assert sum(line.startswith("restarted") for line in lines(admin, task_id)) == 2


def test_a_task_that_has_only_waited_has_no_strip(admin: Browser) -> None:
    admin.queue("mail")
    [task_id] = admin.put("mail")
    admin.clock.forward(60)

    page = admin.get(f"/console/tasks/{task_id}").page
    assert page.all("svg", class_="life") == []
    assert "No attempt has ended yet." in page.text


def test_an_attempt_whose_beginning_is_not_known_is_drawn_as_such(admin: Browser) -> None:
    task = admin.use.tasks.get(worked(admin))
    before = tuple(replace(error, started_at=None) for error in task.errors)
    old = replace(task, errors=before)
    told = story.events(old)
    strip = story.strip(old, admin.clock(), told)

    assert strip is not None
    assert "attempt 1 waited and ran 10 s, and failed" in strip.words
    assert "unknown" in strip.kinds


def test_children_of_a_report_are_a_tree_for_who_may_see_them(admin: Browser) -> None:
    admin.queue("mail", history_retention_in_seconds=3600)
    admin.queue("sms")
    [parent] = admin.put("mail")
    [task] = admin.take("mail")
    spec = TaskSpec('{"task":"sms.send","args":{}}')
    admin.say(task, ReportStatus.SUCCEEDED, spawn=(("sms", spec), ("sms", TaskSpec("2"))))

    page = admin.get(f"/console/tasks/{parent}").page
    children = [each.text for each in page.one("ul", class_="steps").all("li")]
    assert len(children) == 2
    assert children[0].startswith("sms.send ready")
    theirs = admin.as_role(Role.VIEWER, "mail").get(f"/console/tasks/{parent}").page
    assert theirs.all("ul", class_="steps") == []
    [alone] = admin.put("mail")
    assert admin.get(f"/console/tasks/{alone}").page.all("ul", class_="steps") == []
