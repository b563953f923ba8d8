"""Priorities in the console: shown, filtered by, switched on and off, and chosen in forms."""

from headrace.domain.queue_settings import PrioritySettings
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
