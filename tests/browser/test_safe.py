"""What a task carries stays text, and the browser holds to the policy."""

import pytest

from tests.browser.conftest import Console, Enter
from tests.browser.places import pages, states
from tests.browser.stock import BIG, EVIL

_ROLES = ("admin", "viewer")


@pytest.mark.parametrize("role", _ROLES)
def test_no_page_makes_the_browser_complain(console: Console, enter: Enter, role: str) -> None:
    person = enter(role, script=True)
    for path in (pages(console.names) | states(console.stock)).values():
        person.go(path)
        title = person.page.title()
        assert title.endswith(" · Headrace local")

    assert person.complaints == []


def test_markup_in_a_task_is_text_on_its_page(console: Console, enter: Enter) -> None:
    person = enter(script=True).go(f"/console/tasks/{console.stock.evil}")
    payload = person.page.locator("section.json pre").first.inner_text()

    assert EVIL.replace('"', '\\"') in payload
    assert str(BIG) in payload
    assert EVIL in person.page.locator(".error-text").inner_text()
    assert person.page.locator("main img, main script, main [onclick]").count() == 0
    assert "broken in" not in person.page.title()


def test_the_policy_stops_what_would_get_in(console: Console, enter: Enter) -> None:
    person = enter(script=True).go("/console")
    ran = person.page.evaluate(
        """() => new Promise((tell) => {
          document.addEventListener("securitypolicyviolation",
            (event) => tell(event.effectiveDirective));
          const script = document.createElement("script");
          script.textContent = "window.ran = true";
          document.body.append(script);
          setTimeout(() => tell(window.ran ? "ran" : "nothing"), 2000);
        })"""
    )

    assert ran == "script-src-elem"
    assert len(person.complaints) == 1
    person.complaints.clear()


def test_a_viewer_is_shown_no_payload_and_nothing_to_do(console: Console, enter: Enter) -> None:
    person = enter("viewer").go(f"/console/tasks/{console.stock.dead}")

    assert "user0@example.org" not in person.text
    assert "Payload, result and progress are not shown to viewer keys." in person.text
    assert [stop["name"] for stop in person.stops() if stop["tag"] == "button"] == ["Sign out"]


def test_a_window_that_signs_out_leaves_nothing_behind(console: Console, enter: Enter) -> None:
    person = enter(None).go("/console/sign-in")
    person.type("API key", console.admin_key).send()
    [session] = [c for c in person.context.cookies() if c["name"] == "headrace_session"]
    assert (session["httpOnly"], session["sameSite"]) == (True, "Strict")

    person.open("Sign out")
    assert "headrace_session" not in {cookie["name"] for cookie in person.context.cookies()}
    person.page.go_back()
    assert person.heading == "Sign in"
