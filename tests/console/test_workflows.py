"""Workflows in the console: the list, how far one is, its steps, and a stalled one."""

import pytest

from headrace.domain.access import Role
from headrace.domain.batch import BatchEvent, Callback
from headrace.domain.plan import TaskSpec
from headrace.ops.delivery.reports import ReportStatus, WorkerError
from tests.console.conftest import Browser, Element


@pytest.fixture
def flow(admin: Browser) -> Browser:
    """Give an admin a workflow of two steps and one that waits for both."""
    admin.queue("mail")
    batches = admin.use.task_batches
    batches.create({}, batch_id="wfl", total=3)
    last = TaskSpec('{"task": "shop.sum", "args": {}}', batches=("wfl",), tags={"step": "sum"})
    on = {BatchEvent.SUCCEEDED: Callback("mail", last)}
    batches.create(on, batch_id="wfl-sum", total=2)
    for name in ("load", "count"):
        payload = f'{{"task": "shop.{name}", "args": {{}}}}'
        admin.put("mail", payload, batches=("wfl", "wfl-sum"), tags={"step": name})
        admin.clock.forward(1)
    [task] = admin.take("mail")
    admin.say(task, ReportStatus.SUCCEEDED)
    return admin


def test_workflows_are_listed_with_state_and_progress(flow: Browser) -> None:
    shown = flow.get("/console/workflows")

    [only] = shown.page.one("tbody").all("tr")  # what makes a step stands within its workflow
    assert only.text.startswith("wfl running 1 of 3 1 0")
    assert shown.page.all("a", href="/console/workflows/wfl")


def rows_of(browser: Browser, workflow: str = "wfl") -> list[Element]:
    return browser.get(f"/console/workflows/{workflow}").page.one("tbody").all("tr")


def fail(browser: Browser, *, retryable: bool = False) -> str:
    [task] = browser.take("mail")
    error = WorkerError("KeyError", "no tenant", "")
    browser.say(task, ReportStatus.FAILED, error=error, retryable=retryable)
    return task.id


def test_a_workflow_has_a_row_for_each_step_that_runs_waits_or_has_ended(flow: Browser) -> None:
    shown = flow.get("/console/workflows/wfl")

    assert "1 of 3 finished · 1 running or waiting · 1 not started" in shown.text
    bar = shown.page.one("progress", class_="how-far")
    assert (bar.attributes["value"], bar.attributes["max"]) == ("1", "3")
    count, last, load = rows_of(flow)
    assert count.text.startswith("count shop.count mail ready")
    assert last.text.startswith("sum after load, count shop.sum mail not started")
    assert load.text.startswith("load shop.load mail succeeded 1 of 6")


def test_a_step_that_fails_is_first_and_says_when_it_is_retried(flow: Browser) -> None:
    fail(flow, retryable=True)

    count = rows_of(flow)[0]
    assert count.text.startswith("count shop.count mail scheduled 1 of 6 KeyError: no tenant in ")


def test_a_stalled_workflow_says_so_and_goes_on_once_its_step_is_restarted(flow: Browser) -> None:
    fail(flow)
    flow.record()
    flow.clock.forward(61)
    listed = flow.get("/console/workflows?q=state:stalled")
    shown = flow.get("/console/workflows/wfl")

    assert "stalled" in listed.page.one("tbody").text
    assert "Stalled: 1 dead, and nothing runs" in shown.text
    assert [one.id for one in flow.use.task_batches.stalled()] == ["wfl"]
    trouble = flow.get("/console").page.one("ol", class_="troubles").text
    assert trouble.startswith("wfl stalled 1 dead, 1 not started, and nothing runs")
    dead = rows_of(flow)[0]
    assert "dead" in dead.text
    back = flow.follow(flow.submit(shown.page, "/wfl/restart"))
    assert "1 task restarted." in back.text
    flow.record()
    assert flow.use.task_batches.stalled() == []
    assert "Stalled" not in flow.get("/console/workflows/wfl").text


def test_a_stalled_workflow_is_shown_only_to_keys_for_its_queues(flow: Browser) -> None:
    fail(flow)
    flow.record()
    flow.clock.forward(61)
    flow.queue("sms")
    other = flow.as_role(Role.OPERATOR, "sms")

    assert "wfl" not in other.get("/console").page.one("main").text


def test_a_batch_names_its_dead_and_its_callbacks(admin: Browser) -> None:
    admin.queue("mail")
    on = {BatchEvent.FAILED: Callback("mail", TaskSpec('"failed"'))}
    admin.use.task_batches.create(on, batch_id="b")
    [task_id] = admin.put("mail", batches=("b",))
    fail(admin)

    shown = admin.get("/console/workflows/b")

    assert "1 of 1 so far finished; open for more" in shown.text
    assert "Callbacks: failed" in shown.text
    assert shown.page.one("tbody").all("a", href=f"/console/tasks/{task_id}")


def test_a_workflow_is_cancelled_from_its_page(flow: Browser) -> None:
    producer = flow.as_role(Role.PRODUCER)
    page = producer.get("/console/workflows/wfl").page
    assert page.all("a", href="/console/workflows/wfl/cancel")

    asked = producer.get("/console/workflows/wfl/cancel")
    done = producer.follow(producer.submit(asked.page, "/wfl/cancel"))

    assert "no further step starts: 1 member live" in asked.text
    assert "1 task of wfl cancelled." in done.text
    assert "cancelled" in rows_of(producer)[-2].text
    assert "/wfl/cancel" not in producer.get("/console/workflows/wfl").body
    viewer = flow.as_role(Role.VIEWER)
    assert "/wfl/cancel" not in viewer.get("/console/workflows/wfl").body
    assert viewer.get("/console/workflows/wfl/cancel").status == 403
