"""Priorities in the console: shown, filtered by, switched on and off, and chosen in forms."""

from headrace.domain.queue import PrioritySettings
from headrace.domain.task import Priority
from tests.console.conftest import Browser


def ranked(browser: Browser) -> list[str]:
    """Fill a queue that has priorities; return the ids of its tasks, high before low."""
    browser.queue("mail", priority=PrioritySettings())
    return [
        task for level in Priority for task in browser.put("mail", f'"{level}"', priority=level)
    ]


def test_a_list_has_a_column_and_a_filter_for_them(admin: Browser) -> None:
    high, normal, low = ranked(admin)

    table = admin.get("/console/queues/mail").page.one("table", class_="tasks").text
    filtered = admin.get("/console/queues/mail?priority=high").body

    assert "Priority" in table
    assert all(level in table for level in Priority)
    assert high in filtered
    assert normal not in filtered
    assert low not in filtered
    wrong = admin.get("/console/queues/mail?priority=urgent").text
    assert "must be one of high, normal, low" in wrong


def test_a_task_enqueued_as_new_has_the_one_that_was_chosen(admin: Browser) -> None:
    _, _, low = ranked(admin)
    admin.queue("plain")

    def again(**fields: str) -> tuple[int, str]:
        form = admin.get(f"/console/tasks/{low}/enqueue").page
        shown = admin.submit(form, f"/{low}/enqueue", payload="1", **fields)
        made = admin.submit(shown.page, f"/{low}/enqueue")
        return made.status, made.headers.get("location", made.text)

    status, where = again(priority="high")
    assert status == 303
    assert admin.task(where.rpartition("/")[2]).priority is Priority.HIGH
    status, text = again(priority="high", queue="plain")
    assert (status, "priority has no meaning in queue plain" in text) == (400, True)
