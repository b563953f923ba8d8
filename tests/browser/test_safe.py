"""What a task carries stays text, and the browser holds to the policy."""

from tests.browser.conftest import Console, Enter
from tests.browser.fixtures import BIG, EVIL


def test_markup_in_a_task_is_text_on_its_page(console: Console, enter: Enter) -> None:
    user = enter(script=True).go(f"/console/tasks/{console.fixtures.evil}")
    payload = user.page.locator("section.json pre").first.inner_text()

    assert EVIL.replace('"', '\\"') in payload
    assert str(BIG) in payload
    assert EVIL in user.page.locator(".error-text").inner_text()
    assert user.page.locator("main img, main script, main [onclick]").count() == 0
    assert user.page.title().startswith('{"x":"<script>')


def test_the_policy_stops_what_would_get_in(console: Console, enter: Enter) -> None:
    user = enter(script=True).go("/console")
    ran = user.page.evaluate(
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
    assert len(user.complaints) == 1
    user.complaints.clear()


def test_a_window_that_signs_out_leaves_nothing_behind(console: Console, enter: Enter) -> None:
    user = enter(None).go("/console/sign-in")
    user.type("API key", console.admin_key).send()
    [session] = [c for c in user.context.cookies() if c["name"] == "headrace_session"]
    assert (session["httpOnly"], session["sameSite"]) == (True, "Strict")

    user.tab_to("Menu of").press("Enter")
    user.open("Sign out")
    assert "headrace_session" not in {cookie["name"] for cookie in user.context.cookies()}
    user.page.go_back()
    assert user.heading == "Sign in"
