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
        lambda request: seen.append(request.url) if request.resource_type == "fetch" else None,
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
    with user.page.expect_response(lambda r: r.request.resource_type == "fetch"):
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
    user.type("Search these tasks", "smtp")
    user.page.clock.run_for(3 * _LOOK)

    assert seen == []
    assert "paused while you type" in user.page.locator(".live").inner_text()
    assert user.page.locator("#query").input_value() == "smtp"

    user.tab_to("Search")
    pass_time(user)
    user.page.locator("[data-live-note]:empty").wait_for(state="attached")


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


def test_the_whole_page_is_refreshed_with_its_buttons(console: Console, enter: Enter) -> None:
    user, _ = at_ease(enter, "/console/queues/nightly")
    console.client.pause_queue("nightly")
    try:
        pass_time(user)
        user.page.get_by_role("button", name="Resume deliveries").wait_for()
        assert "Paused by" in user.text
        assert user.page.locator("[data-live-tools]").is_visible()
    finally:
        console.client.resume_queue("nightly")


def test_a_banner_says_why_a_page_is_no_longer_live(enter: Enter) -> None:
    user, _ = at_ease(enter)
    banner = user.page.locator("[data-stale]")
    user.page.route("**/console/queues/mail*", lambda route: route.abort())
    user.page.clock.run_for(_LOOK)
    user.page.get_by_role("button", name="Retry now").wait_for()
    assert "The service does not answer. The page shows" in banner.inner_text()

    user.page.unroute("**/console/queues/mail*")
    pass_time(user)  # the next try comes within five seconds
    banner.wait_for(state="hidden")

    user.context.clear_cookies()
    user.page.clock.run_for(_LOOK)
    banner.get_by_role("link", name="Sign in").wait_for()
    assert "You are signed out." in banner.inner_text()
    user.complaints.clear()  # the browser reports both failures


def test_a_drag_over_a_chart_shows_that_time_closer(enter: Enter) -> None:
    user = enter(script=True).go("/console/queues/mail")
    box = user.page.locator(".plot").first.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    user.page.mouse.move(box["x"] + box["width"] * 0.25, middle)
    user.page.mouse.down()
    user.page.mouse.move(box["x"] + box["width"] * 0.75, middle, steps=3)
    assert user.page.locator(".zoom-band").count() == 1
    with user.page.expect_navigation():
        user.page.mouse.up()

    begin, end = re.findall(r"(?:from|to)=\d{4}-\d\d-\d\dT(\d\d)%3A(\d\d)", user.page.url)
    minutes = (int(end[0]) - int(begin[0])) * 60 + int(end[1]) - int(begin[1])
    assert minutes % 1440 in (29, 30, 31)
    assert re.search(r"From .* to .*\.", user.text)


def test_one_tick_ticks_all(enter: Enter) -> None:
    user = enter(script=True).go(_MAIL)
    user.tab_to("Tick all on this page").press("Space")

    boxes = user.page.locator("td.tick input")
    assert [box.is_checked() for box in boxes.all()] == [True] * boxes.count()
    assert f"{boxes.count()} selected:" in user.text


def test_ids_are_copied_whole(console: Console, enter: Enter) -> None:
    user = enter(script=True)
    user.context.grant_permissions(["clipboard-read", "clipboard-write"])
    user.go(f"/console/tasks/{console.fixtures.dead}")
    user.tab_to("Copy the id").press("Enter")

    user.page.get_by_text("copied", exact=True).wait_for()
    assert user.page.evaluate("navigator.clipboard.readText()") == console.fixtures.dead


def test_times_stay_right_and_tell_the_viewers_own(enter: Enter) -> None:
    user, _ = at_ease(enter, "/console/queues/mail?tab=settings")
    created = user.page.locator(".facts time").first
    before = created.inner_text()
    user.tab_to("Live").press("Space")
    user.page.clock.run_for(3_600_000)

    assert "s ago" in before or "min ago" in before
    assert re.fullmatch(r"1 h ago", created.inner_text())
    assert re.search(r"UTC\n.*here", str(created.get_attribute("title")))


def focused(user: KeyboardUser) -> str:
    """Return the address that the focus is on."""
    return str(user.page.evaluate("document.activeElement.getAttribute('href')"))


def test_keys_move_along_the_rows_tick_search_and_tell_what_they_do(enter: Enter) -> None:
    user = enter(script=True).go(f"{_MAIL}&limit=25")
    first, second = (
        row.locator("a.call").get_attribute("href")
        for row in user.page.locator("table.tasks tbody tr").all()[:2]
    )

    user.press("j").press("j")
    assert focused(user) == second
    user.press("x")
    assert user.page.locator("td.tick input:checked").count() == 1
    assert "1 selected" in user.page.locator("[data-ticked]").inner_text()
    user.press("k").press("x").press("x")
    assert focused(user) == first
    assert user.page.locator("td.tick input:checked").count() == 1

    user.press("?")
    assert user.page.locator("dialog").is_visible()
    user.press("Escape")
    assert not user.page.locator("dialog").is_visible()
    user.press("/")
    user.page.keyboard.type("j/")
    assert user.page.locator("main input[type=search]").input_value() == "j/"
