"""What people on call ask for first takes few clicks from home, with script and without."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.browser.conftest import Console, Enter
from tests.browser.fixtures import let_die
from tests.browser.keyboard_user import KeyboardUser
from tests.waiting import until

pytestmark = pytest.mark.parametrize("script", [False, True], ids=["plain", "script"])


@dataclass
class Mouse:
    """Somebody at home who clicks, and counts."""

    user: KeyboardUser
    clicks: int = 0

    def click(self, role: str, name: str, *, within: str = "body") -> "Mouse":
        """Click the first that has this name; a page must follow."""
        where = self.user.page.locator(within).get_by_role(role, name=name)
        with self.user.page.expect_navigation():
            where.first.click()
        self.clicks += 1
        return self


AtHome = Callable[[], Mouse]


@pytest.fixture
def at_home(enter: Enter, script: bool) -> AtHome:  # noqa: FBT001  a parameter of every test here
    """Give what opens a window at home."""
    return lambda: Mouse(enter(script=script).go("/console"))


def test_why_tasks_fail_and_since_when_takes_two(at_home: AtHome) -> None:
    mouse = at_home().click("link", "Errors")

    group = mouse.user.page.locator(".group", has_text="no answer from smtp.example.org").first
    assert "TimeoutError" in group.inner_text()
    assert group.locator("time[datetime]").count() >= 1
    assert mouse.clicks <= 2


def test_one_error_is_restarted_by_two_and_a_confirmation(
    console: Console, at_home: AtHome, *, script: bool
) -> None:
    queue = f"restarts.{'script' if script else 'plain'}"
    console.client.create_queue(queue)
    meant = let_die(console.client, queue, 3, f"disk full in {queue}")
    for name in ("mail", queue):
        console.client.get_stats(name, exact=True)

    mouse = at_home().click("link", "Errors")
    within = f'.group:has-text("disk full in {queue}")'
    mouse.user.page.locator(within).first.wait_for()
    mouse.click("button", "Restart", within=within)
    assert mouse.clicks == 2
    mouse.user.page.get_by_role("button", name="Restart 3 tasks").first.click()
    mouse.user.page.get_by_text("3 tasks restarted").first.wait_for()

    assert {console.client.get_task(one).state for one in meant} == {"ENQUEUED"}


def test_how_workers_are_takes_one(at_home: AtHome) -> None:
    mouse = at_home().click("link", "Workers")

    assert mouse.clicks == 1
    shown = mouse.user.page.locator("table.workers").inner_text().lower()
    assert re.search(r"\b(alive|late|gone)\b", shown)  # it was filled some minutes ago


def test_why_a_task_is_not_running_takes_two_and_names_that_nobody_listens(
    at_home: AtHome,
) -> None:
    mouse = at_home().click("link", "thumbnails")
    mouse.click("link", "tsk_", within="table.tasks")

    assert mouse.clicks == 2
    page = mouse.user.page

    def explained() -> str:
        page.reload()
        text = page.locator("section[aria-labelledby=why]").inner_text()
        return text if "no_workers" in text else ""

    why = until(explained, 30, every=1.0)  # the page says so once a task has been due for 10 s
    assert "thumbnails" in why


def test_what_a_colleague_changed_takes_one(console: Console, at_home: AtHome) -> None:
    console.client.pause_queue("empty", 3600)
    mouse = at_home().click("link", "Audit")

    assert mouse.clicks == 1
    first = mouse.user.page.locator("main").inner_text()
    assert "empty" in first
    assert "pause" in first.lower()
    console.client.resume_queue("empty")


def test_comparing_a_queue_with_yesterday_takes_one(at_home: AtHome) -> None:
    mouse = at_home().click("link", "mail", within="table.queues")
    there = mouse.clicks
    mouse.click("link", "yesterday", within=".chart-bar")

    assert mouse.clicks - there == 1
    assert "The faint lines are of a day before" in mouse.user.text
