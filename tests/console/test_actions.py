"""What operators do to tasks: asked first, done then, noted in the audit."""

import pytest

from headrace.domain.access import Role
from headrace.domain.task import State
from tests.console.conftest import Browser
from tests.console.test_action_page import decide


@pytest.mark.parametrize(
    ("target", "says"), [("", "is needed"), ("nowhere", "no queue nowhere"), ("mail", "another")]
)
def test_a_move_to_nowhere_is_refused_beside_its_field(
    filled: Browser, target: str, says: str
) -> None:
    task = filled.kill("mail")
    confirm = filled.get(f"/console/tasks/{task}/move")
    refused = filled.submit(confirm.page, "/move", to_queue=target)

    assert refused.status in (400, 404)
    assert says in refused.page.one("p", class_="wrong").text


def test_whoever_may_enqueue_may_cancel_and_nothing_else(filled: Browser) -> None:
    producer = filled.as_role(Role.PRODUCER, "mail")
    [task] = filled.put("mail")
    [foreign] = filled.put("empty")

    shown = producer.get(f"/console/tasks/{task}").text
    assert "Cancel…" in shown
    assert "Delete…" not in shown
    assert producer.get(f"/console/tasks/{task}/delete").status == 403
    assert producer.get(f"/console/tasks/{foreign}/cancel").status in (403, 404)
    confirm = producer.get(f"/console/tasks/{task}/cancel")
    producer.submit(confirm.page, "/cancel")

    assert filled.task(task).cancelled
    assert filled.as_role(Role.VIEWER).get(f"/console/tasks/{task}/cancel").status == 403


def test_ticked_tasks_are_shown_before_they_are_restarted(filled: Browser) -> None:
    ids = [filled.kill("mail") for _ in range(7)]
    page = filled.get("/console/queues/mail?state=DEAD").page
    spared = filled.put("mail")
    confirm = filled.follow(filled.submit(page, "/selected", id=ids + spared, action="restart"))

    assert "Restart 7 tasks of mail?" in confirm.text
    assert "+2 more" in confirm.text
    assert "Selected 8 tasks" in confirm.text
    assert "Skipped 1: it is not finished" in confirm.text
    assert {filled.task(one).state for one in ids} == {State.DEAD}
    sent = decide(filled, confirm, "all", reason="fixed")
    assert sent.headers["location"] == "/console/queues/mail?state=DEAD"
    assert "7 tasks restarted." in filled.follow(sent).text
    [entry] = filled.audited("restart")
    assert (entry.ids, entry.changed, entry.reason) == ([*ids, *spared], 7, "fixed")


@pytest.mark.parametrize(
    ("action", "more", "said"),
    [
        ("run", {}, "made due 1 task of mail: they wait for it"),
        ("move", {"to_queue": "empty"}, "moved 1 task of mail to empty: they wait for it"),
        ("cancel", {}, "cancelled 1 task of mail: they wait for it"),
        ("delete", {}, "deleted 1 task of mail: they wait for it"),
        ("restart", {}, "restarted 1 task of mail: they wait for it"),
    ],
)
def test_why_one_task_is_acted_on_is_asked_and_told_in_the_audit(
    filled: Browser, action: str, more: dict[str, str], said: str
) -> None:
    later = filled.put("mail", delay_in_seconds=600)[0]
    task_id = filled.kill("mail") if action == "restart" else later
    path = f"/tasks/{task_id}/{action}"
    confirm = filled.get(f"/console{path}").page

    refused = filled.submit(confirm, path, reason="é" * 251, **more)
    assert refused.status == 400
    assert "must have at most 500 bytes" in refused.text
    assert filled.audited(action) == ()
    filled.submit(refused.page, path, reason=" they wait for it ", **more)

    [entry] = filled.audited(action)
    assert (entry.reason, entry.ids) == ("they wait for it", [task_id])
    row = filled.get(f"/console/activity?q=action:{action}").page.one("tbody").one("tr")
    assert f"bootstrap {said[0].upper()}{said[1:]}" in row.text
