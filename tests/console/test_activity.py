"""Activity: who did what, to how many, when, and from which filter."""

import pytest

from headrace.domain.access import Role
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.retry import RetryStrategy
from tests.console.conftest import Browser, Element, Shown, query_of


def rows(shown: Shown) -> list[Element]:
    return shown.page.one("tbody").all("tr")


@pytest.fixture
def acted(filled: Browser) -> Browser:
    """Give an admin a console where somebody restarted dead tasks by a filter."""
    operator = filled.as_role(Role.OPERATOR)
    filled.clock.forward(1)  # what happens at one instant is told in any order
    page = operator.get("/console/queues/mail").page
    operator.submit(page, "/mail/pause")
    filled.clock.forward(60)
    where = TaskFilter(states=("DEAD",), tags={"service": "x"}, error="No ANSWER", min_attempts=1)
    filled.use.bulk.by_filter("mail", BulkAction.RESTART, where)
    filled.clock.forward(1)
    filled.use.bulk.by_filter("mail", BulkAction.RESTART, TaskFilter(states=("DEAD",)))
    return filled


def test_a_filter_leads_to_the_tasks_it_meant(acted: Browser) -> None:
    row = rows(acted.get("/console/activity"))[1]
    [link] = [a for a in row.all("a") if "state" in a.text]

    assert link.text == "state DEAD, tags service=x, min attempts 1, error No ANSWER"
    url = link.attributes["href"]
    assert query_of(url) == {"q": 'state:dead tag:service=x error:"No ANSWER" attempts:1'}
    assert acted.get(url).status == 200


@pytest.mark.parametrize("role", [Role.VIEWER, Role.PRODUCER, Role.WORKER])
def test_the_audit_is_for_those_who_operate(acted: Browser, role: Role) -> None:
    browser = acted.as_role(role)

    assert browser.get("/console/activity").status == 403
    assert "Activity" not in [link.text for link in browser.get("/console").page.all("a")]


def test_changed_settings_say_what_they_were_and_are(admin: Browser) -> None:
    retries = RetryStrategy(max_retries=3)
    admin.queue("mail", retry_strategy=retries, description="Letters")
    admin.save("mail", max_retries="5", description="")

    [row] = rows(admin.get("/console/activity?q=action:update_queue"))
    assert [each.text for each in row.all("li")][:2] == [
        "description Letters → none",
        "retry_strategy.max_retries 3 → 5",
    ]
