"""Batches in the console: every one, how far one is, and the steps of a workflow."""

import pytest

from headrace.domain.access import Role
from headrace.domain.batch import BatchEvent, Callback
from headrace.domain.plan import TaskSpec
from headrace.ops.delivery.reports import ReportStatus
from tests.console.conftest import Browser, Element


@pytest.fixture
def flow(admin: Browser) -> Browser:
    """Give an admin a workflow of two steps and one that waits for both."""
    admin.queue("mail")
    batches = admin.use.task_batches
    batches.create({}, batch_id="wfl", total=3)
    last = TaskSpec("{}", batches=("wfl",), tags={"step": "sum"})
    on = {BatchEvent.SUCCEEDED: Callback("mail", last)}
    batches.create(on, batch_id="wfl-sum", total=2)
    for name in ("load", "count"):
        admin.put("mail", batches=("wfl", "wfl-sum"), tags={"step": name})
        admin.clock.forward(1)
    [task] = admin.take("mail")
    admin.say(task, ReportStatus.SUCCEEDED)
    return admin


def test_batches_are_listed_with_their_numbers(flow: Browser) -> None:
    shown = flow.get("/console/batches")

    [only] = shown.page.one("tbody").all("tr")  # what makes a step stands within its workflow
    assert only.text.startswith("wfl 3 1 1 0 0")
    assert "not yet" in only.text
    assert shown.page.all("a", href="/console/batches/wfl")


def test_a_workflow_shows_what_runs_and_what_waits_for_what(flow: Browser) -> None:
    shown = flow.get("/console/batches/wfl")

    assert "1 of 3 have ended, 1 not seen yet" in shown.text
    bar = shown.page.one("progress", class_="how-far")
    assert (bar.attributes["value"], bar.attributes["max"]) == ("1", "3")
    load, count, last = shown.page.one("ul", class_="steps").all("li")
    assert load.text.startswith("load succeeded ")
    assert count.text.startswith("count ready ")
    assert last.text == "sum waits mail; 1 of 2 have ended; after load, count"


def _steps(browser: Browser) -> Element:
    page = browser.get("/console/batches/wfl").page
    return page.one("ul", **{"aria-labelledby": "steps"})


def test_a_batch_names_its_dead_and_what_it_called_back(admin: Browser) -> None:
    admin.queue("mail")
    on = {BatchEvent.FAILED: Callback("mail", TaskSpec('"failed"'))}
    admin.use.task_batches.create(on, batch_id="b")
    [task_id] = admin.put("mail", batches=("b",))
    [task] = admin.take("mail")
    admin.say(task, ReportStatus.FAILED, retryable=False)

    shown = admin.get("/console/batches/b")

    assert "1 of 1 seen have ended; it is open" in shown.text
    assert "Called back: failed" in shown.text
    assert shown.page.one("ul", class_="samples").all("a", href=f"/console/tasks/{task_id}")


def test_a_workflow_is_cancelled_from_its_page(flow: Browser) -> None:
    producer = flow.as_role(Role.PRODUCER)
    page = producer.get("/console/batches/wfl").page
    assert page.all("a", href="/console/batches/wfl/cancel")

    asked = producer.get("/console/batches/wfl/cancel")
    done = producer.follow(producer.submit(asked.page, "/wfl/cancel"))

    assert "no step is made any more: 1 member counted as live" in asked.text
    assert "1 task of wfl cancelled." in done.text
    assert "sum cancelled mail" in _steps(producer).text
    assert "/wfl/cancel" not in producer.get("/console/batches/wfl").body
    viewer = flow.as_role(Role.VIEWER)
    assert "/wfl/cancel" not in viewer.get("/console/batches/wfl").body
    assert viewer.get("/console/batches/wfl/cancel").status == 403
