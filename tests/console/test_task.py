"""The page of one task: what happened to it, and what to do about it."""

from console.chalicelib.calls import progress_of
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


def test_a_task_is_titled_by_its_function_and_arguments(admin: Browser) -> None:
    admin.queue("mail")
    [task_id] = admin.put("mail", '{"task": "send", "args": {"to": "ada", "n": 3}}')
    page = admin.get(f"/console/tasks/{task_id}").page

    assert page.one("h1").text == 'send (to="ada", n=3)'
    assert page.one("title").text.startswith('send(to="ada", n=3)')
    assert task_id in page.one("p", class_="status-line").text
    viewer = admin.as_role(Role.VIEWER).get(f"/console/tasks/{task_id}").page
    assert viewer.one("h1").text == task_id


def test_a_running_task_says_for_how_long_and_how_far_it_is(admin: Browser) -> None:
    admin.queue("mail", keepalive_timeout_in_seconds=60)
    admin.put("mail")
    [task] = admin.take("mail")
    admin.clock.forward(45)
    admin.say(task, ReportStatus.INFLIGHT, progress='{"rows": 1200, "of": 4000}')
    admin.clock.forward(35)

    page = admin.get(f"/console/tasks/{task.id}").page
    assert "running for 1 min 20 s on ada:1" in page.one("p", class_="status-line").text
    assert page.one("progress").attributes["value"] == "0.3"
    assert page.one("p", class_="task-progress").text == "1 200 of 4 000 rows"
    assert page.all("section", **{"aria-labelledby": "why"}) == []

    admin.clock.forward(60)
    why = admin.get(f"/console/tasks/{task.id}").page.one("section", **{"aria-labelledby": "why"})
    assert "Lease ended The lease of ada:1 ended 35 s ago without a report" in why.text


def test_progress_is_read_in_its_usual_forms() -> None:
    quarters = ("0.25", "25", '{"percent": 25.0}', '{"part": 1, "parts": 4}',
                '{"done": 1, "total": 4, "note": "x"}')  # fmt: skip
    assert [found and found.share for found in map(progress_of, quarters)] == [0.25] * 5
    others = ('{"rows": 5}', '{"rows": 5, "of": 0}', "250", "true", "[1, 2]", None)
    assert [*map(progress_of, others)] == [None] * 6


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


def test_moves_over_queues_are_one_story_and_each_attempt_says_where_it_was(admin: Browser) -> None:
    task_id = worked(admin)

    told = lines(admin, task_id)
    assert told[0].startswith("1. succeeded in sms now , ran 4 s after waiting 1 min , by")
    assert told[1].startswith("moved from mail to sms")
    assert told[2].startswith("2. failed in mail 1 min ago , ran 2 s after waiting 25 s")
    assert told[3].startswith("1. failed in mail")
    assert "ran 2 s after waiting 8.0 s , by ada:8" in told[3]
    assert len(told) == 4


def test_a_queue_of_others_is_not_named_in_the_story(admin: Browser) -> None:
    task_id = worked(admin)
    theirs = admin.as_role(Role.VIEWER, "sms")

    told = lines(theirs, task_id)
    assert told[1].startswith("moved from another queue to sms")
    assert "failed in another queue" in told[2]
    assert "mail" not in theirs.get(f"/console/tasks/{task_id}").text


def test_children_of_a_report_are_listed_for_keys_that_may_see_them(admin: Browser) -> None:
    admin.queue("mail", history_retention_in_seconds=3600)
    admin.queue("sms")
    [parent] = admin.put("mail")
    [task] = admin.take("mail")
    spec = TaskSpec('{"task":"sms.send","args":{}}')
    admin.say(task, ReportStatus.SUCCEEDED, spawn=(("sms", spec), ("sms", TaskSpec("2"))))

    page = admin.get(f"/console/tasks/{parent}").page
    children = [each.text for each in page.one("table", class_="blocks").one("tbody").all("tr")]
    assert len(children) == 2
    assert "sms.send ready sms" in children[0]
    theirs = admin.as_role(Role.VIEWER, "mail").get(f"/console/tasks/{parent}").page
    assert theirs.all("table", class_="blocks") == []
    [alone] = admin.put("mail")
    assert admin.get(f"/console/tasks/{alone}").page.all("table", class_="blocks") == []
