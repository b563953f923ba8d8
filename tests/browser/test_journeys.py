"""What an operator comes for: each journey without script, and by keyboard alone."""

import pytest

from tests.browser.conftest import Console, Enter
from tests.browser.fixtures import let_die


@pytest.mark.gate
def test_one_finds_a_dead_task_restarts_it_and_undoes_a_deletion(
    console: Console, enter: Enter
) -> None:
    console.client.create_queue("faxes")
    dead, deleted = let_die(console.client, "faxes", 2, "line is busy")
    console.client.get_stats("faxes", exact=True)
    user = enter(None).go("/console/")
    user.type("API key", console.admin_key).send()
    user.open("Errors").open("faxes")

    user.go(f"/console/tasks/{dead}").open("Restart").open("Restart")
    assert user.notice == f"Task {dead} is restarted."
    assert console.client.get_task(dead).state == "ENQUEUED"

    user.go(f"/console/tasks/{deleted}").open("Delete").open("Delete")
    assert deleted not in {task.id for task in console.client.list_tasks("faxes")}
    user.open("Undo")
    assert console.client.get_task(deleted).state == "DEAD"
    user.open("Sign out")
    assert user.heading == "Sign in"


def test_one_pauses_a_queue_and_it_resumes(console: Console, enter: Enter) -> None:
    user = enter().go("/console/queues/thumbnails")

    user.tab_to("Pause").press("Enter")
    user.type("Pause deliveries for", "15m").open("Pause")

    assert "It resumes in 15m" in user.notice
    assert "Resumes in 14 min" in user.text
    assert console.client.get_queue("thumbnails").dequeuing_settings.dequeuing_paused

    user.open("Resume deliveries")
    assert user.notice == "thumbnails resumed."
    assert not console.client.get_queue("thumbnails").dequeuing_settings.dequeuing_paused


def test_one_creates_a_schedule_and_sees_its_next_runs(console: Console, enter: Enter) -> None:
    user = enter().go("/console").open("Schedules").open("Create a schedule")

    user.type("Queue", "nightly").type("Name", "reports").type("Cron", "30 4 * * *")
    user.open("Show next runs")
    shown = user.page.locator(".preview .run-list tbody tr")
    assert shown.count() == 5
    assert all("04:30:00" in text for text in shown.all_inner_texts())
    assert "Nothing is saved yet." in user.text

    user.open("Create schedule")
    assert user.notice == "Schedule reports of nightly saved."
    assert user.heading == "reports"
    assert user.page.locator(".run-list tbody tr").count() == 5
    assert console.client.get_schedule("nightly", "reports").cron == "30 4 * * *"


def test_one_restarts_exactly_what_matches(console: Console, enter: Enter) -> None:
    console.client.create_queue("sms")
    meant = let_die(console.client, "sms", 8, "gateway timeout")
    spared = let_die(console.client, "sms", 3, "no such number")
    user = enter().go("/console/queues/sms?state=DEAD")

    user.type("Search these tasks", "error:gateway").open("Search")
    user.open("Restart all")
    user.page.get_by_text("Nothing has changed yet").wait_for()
    assert user.heading == "Restart 8 tasks of sms?"
    late = let_die(console.client, "sms", 1, "gateway timeout")
    user.open("Restart 8 tasks")
    user.page.get_by_text("8 tasks restarted.").wait_for()

    states = {task.id: task.state for task in console.client.list_tasks("sms")}
    assert {states[id_] for id_ in meant} == {"ENQUEUED"}
    assert {states[id_] for id_ in spared + late} == {"DEAD"}
