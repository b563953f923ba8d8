"""The console's one script: what it makes pleasanter, and when it keeps still."""

import re

from tests.browser.conftest import Console, Enter
from tests.browser.person import Person

_MAIL = "/console/queues/mail?state=DEAD"
_LOOK = 5_200  # milliseconds after which the script has looked once more


def looks(person: Person) -> list[str]:
    """Return a list that grows with each refresh of a part."""
    seen: list[str] = []
    person.page.on(
        "request",
        lambda request: seen.append(request.url) if "x-part" in request.headers else None,
    )
    return seen


def at_ease(enter: Enter, path: str = _MAIL) -> tuple[Person, list[str]]:
    """Open a page whose clock is in the test's hand."""
    person = enter(script=True)
    person.page.clock.install()
    person.go(path)
    return person, looks(person)


def pass_time(person: Person) -> None:
    """Let the script's next look come, and what it asks for."""
    with person.page.expect_response(lambda r: "x-part" in r.request.headers):
        person.page.clock.run_for(_LOOK)
    person.page.wait_for_load_state("networkidle")


def test_a_page_refreshes_by_itself(console: Console, enter: Enter) -> None:
    person, seen = at_ease(enter, "/console/queues/nightly")
    console.client.enqueue("nightly", {"by": "hand"})
    console.client.get_stats("nightly", exact=True)

    row = person.page.locator("table.tasks tbody tr")
    assert row.count() == 0
    pass_time(person)
    row.first.wait_for()

    assert len(seen) == 1


def test_it_keeps_still_while_a_form_is_filled(enter: Enter) -> None:
    person, seen = at_ease(enter)
    person.tab_to("Filter and order").press("Enter")
    person.type("Error has", "smtp")
    person.page.clock.run_for(3 * _LOOK)

    assert seen == []
    assert "paused while you type" in person.page.locator(".live").inner_text()
    assert person.page.locator("#f-error").input_value() == "smtp"

    person.tab_to("Show")
    pass_time(person)
    assert "paused" not in person.page.locator(".live").inner_text()


def test_it_keeps_still_while_tasks_are_ticked(enter: Enter) -> None:
    person, seen = at_ease(enter)
    person.tab_to("Task tsk_").press("Space")
    person.tab_to("Restart")
    person.page.clock.run_for(2 * _LOOK)

    assert seen == []
    assert "With the 1 ticked:" in person.text


def test_it_keeps_still_while_nobody_sees_the_page(enter: Enter) -> None:
    person, seen = at_ease(enter)
    person.page.evaluate("Object.defineProperty(document, 'hidden', {get: () => true})")
    person.page.clock.run_for(2 * _LOOK)

    assert seen == []


def test_its_switch_stops_it_and_is_remembered(enter: Enter) -> None:
    person, seen = at_ease(enter)
    person.tab_to("Live").press("Space")
    person.page.clock.run_for(2 * _LOOK)
    assert seen == []

    person.page.reload()
    assert not person.page.locator("[data-live-switch]").is_checked()
    person.page.clock.run_for(2 * _LOOK)
    assert seen == []

    person.tab_to("Live").press("Space")
    pass_time(person)


def test_the_focus_stays_where_it_was(enter: Enter) -> None:
    person, _ = at_ease(enter)
    person.tab_to("tsk_")
    href = person.page.evaluate("document.activeElement.getAttribute('href')")
    pass_time(person)
    person.page.wait_for_function(
        "(href) => document.activeElement.getAttribute('href') === href", arg=href
    )


def test_one_tick_ticks_all(enter: Enter) -> None:
    person = enter(script=True).go(_MAIL)
    person.tab_to("Tick all on this page").press("Space")

    boxes = person.page.locator("td.tick input")
    assert [box.is_checked() for box in boxes.all()] == [True] * boxes.count()
    assert f"With the {boxes.count()} ticked:" in person.text


def test_ids_are_copied_whole(console: Console, enter: Enter) -> None:
    person = enter(script=True)
    person.context.grant_permissions(["clipboard-read", "clipboard-write"])
    person.go(f"/console/tasks/{console.stock.dead}")
    person.tab_to("Copy the id").press("Enter")

    person.page.get_by_text("copied", exact=True).wait_for()
    assert person.page.evaluate("navigator.clipboard.readText()") == console.stock.dead


def test_times_stay_right_and_tell_the_viewers_own(enter: Enter) -> None:
    person, _ = at_ease(enter, "/console/queues/mail")
    created = person.page.locator(".facts time").first
    before = created.inner_text()
    person.tab_to("Live").press("Space")
    person.page.clock.run_for(3_600_000)

    assert "s ago" in before or "min ago" in before
    assert re.fullmatch(r"1 h ago", created.inner_text())
    assert re.search(r"UTC\n.*here", str(created.get_attribute("title")))
