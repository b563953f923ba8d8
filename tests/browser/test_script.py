"""The console's one script: what it makes pleasanter, and when it keeps still."""

import re

from tests.browser.conftest import Console, Enter
from tests.browser.keyboard_user import KeyboardUser

_MAIL = "/console/queues/mail?state=DEAD"
_LOOK = 5_200  # milliseconds after which the script has looked once more


def looks(user: KeyboardUser) -> list[str]:
    """Return a list that grows with each refresh of a part."""
    seen: list[str] = []
    user.page.on(
        "request",
        lambda request: seen.append(request.url) if "x-part" in request.headers else None,
    )
    return seen


def at_ease(enter: Enter, path: str = _MAIL) -> tuple[KeyboardUser, list[str]]:
    """Open a page whose clock is in the test's hand."""
    user = enter(script=True)
    user.page.clock.install()
    user.go(path)
    return user, looks(user)


def pass_time(user: KeyboardUser) -> None:
    """Let the script's next look come, and what it asks for."""
    with user.page.expect_response(lambda r: "x-part" in r.request.headers):
        user.page.clock.run_for(_LOOK)
    user.page.wait_for_load_state("networkidle")


def test_a_page_refreshes_by_itself(console: Console, enter: Enter) -> None:
    user, seen = at_ease(enter, "/console/queues/nightly")
    console.client.enqueue("nightly", {"by": "hand"})
    console.client.get_stats("nightly", exact=True)

    row = user.page.locator("table.tasks tbody tr")
    assert row.count() == 0
    pass_time(user)
    row.first.wait_for()

    assert len(seen) == 1


def test_it_keeps_still_while_a_form_is_filled(enter: Enter) -> None:
    user, seen = at_ease(enter)
    user.tab_to("Filter and order").press("Enter")
    user.type("Error has", "smtp")
    user.page.clock.run_for(3 * _LOOK)

    assert seen == []
    assert "paused while you type" in user.page.locator(".live").inner_text()
    assert user.page.locator("#f-error").input_value() == "smtp"

    user.tab_to("Show")
    pass_time(user)
    user.page.locator("[data-live-note]:empty").wait_for(state="attached")


def test_it_keeps_still_while_tasks_are_ticked(enter: Enter) -> None:
    user, seen = at_ease(enter)
    user.tab_to("Task tsk_").press("Space")
    user.tab_to("Restart")
    user.page.clock.run_for(2 * _LOOK)

    assert seen == []
    assert "With the 1 ticked:" in user.text


def test_it_keeps_still_while_nobody_sees_the_page(enter: Enter) -> None:
    user, seen = at_ease(enter)
    user.page.evaluate("Object.defineProperty(document, 'hidden', {get: () => true})")
    user.page.clock.run_for(2 * _LOOK)

    assert seen == []


def test_its_switch_stops_it_and_is_remembered(enter: Enter) -> None:
    user, seen = at_ease(enter)
    user.tab_to("Live").press("Space")
    user.page.clock.run_for(2 * _LOOK)
    assert seen == []

    user.page.reload()
    assert not user.page.locator("[data-live-switch]").is_checked()
    user.page.clock.run_for(2 * _LOOK)
    assert seen == []

    user.tab_to("Live").press("Space")
    pass_time(user)


def test_the_focus_stays_where_it_was(enter: Enter) -> None:
    user, _ = at_ease(enter)
    user.tab_to("tsk_")
    href = user.page.evaluate("document.activeElement.getAttribute('href')")
    pass_time(user)
    user.page.wait_for_function(
        "(href) => document.activeElement.getAttribute('href') === href", arg=href
    )


def test_one_tick_ticks_all(enter: Enter) -> None:
    user = enter(script=True).go(_MAIL)
    user.tab_to("Tick all on this page").press("Space")

    boxes = user.page.locator("td.tick input")
    assert [box.is_checked() for box in boxes.all()] == [True] * boxes.count()
    assert f"With the {boxes.count()} ticked:" in user.text


def test_ids_are_copied_whole(console: Console, enter: Enter) -> None:
    user = enter(script=True)
    user.context.grant_permissions(["clipboard-read", "clipboard-write"])
    user.go(f"/console/tasks/{console.fixtures.dead}")
    user.tab_to("Copy the id").press("Enter")

    user.page.get_by_text("copied", exact=True).wait_for()
    assert user.page.evaluate("navigator.clipboard.readText()") == console.fixtures.dead


def test_times_stay_right_and_tell_the_viewers_own(enter: Enter) -> None:
    user, _ = at_ease(enter, "/console/queues/mail")
    created = user.page.locator(".facts time").first
    before = created.inner_text()
    user.tab_to("Live").press("Space")
    user.page.clock.run_for(3_600_000)

    assert "s ago" in before or "min ago" in before
    assert re.fullmatch(r"1 h ago", created.inner_text())
    assert re.search(r"UTC\n.*here", str(created.get_attribute("title")))
