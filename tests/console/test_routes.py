"""The app's routes against the template that leads to them, and against a real service."""

import re
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from console.app import FORM, app
from infra.template import Template, load_template
from tests.console.conftest import Browser


@pytest.fixture(scope="module")
def template() -> Template:
    return load_template()


def test_the_template_has_one_route_for_all_pages(template: Template) -> None:
    events = template["Resources"]["ConsoleFunction"]["Properties"]["Events"].values()
    declared = {
        (event["Properties"]["Method"].upper(), event["Properties"]["Path"]) for event in events
    }

    assert {event["Properties"]["Auth"]["Authorizer"] for event in events} == {"NONE"}
    sign_in = {("GET", "/console/sign-in"), ("POST", "/console/sign-in")}  # have their own limit
    assert declared == sign_in | {("ANY", "/console"), ("ANY", "/console/{proxy+}")}


def test_a_method_that_a_page_does_not_take_is_refused(browse: Browser) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
        refused = browse.send(method, "/console/queues/mail", b"", {})

        assert refused.status == 405
        assert refused.headers["allow"] == "GET"
        assert refused.headers["x-frame-options"] == "DENY"


def test_nothing_is_shown_or_done_before_a_sign_in(browse: Browser) -> None:
    browse.queue("mail")
    for path, methods in app.routes.items():
        filled_in = re.sub(r"\{\w+\+?\}", "mail", path)
        for method in methods:
            if path in ("/console/sign-in", "/console/static/{name}", "/console/{path+}"):
                continue
            form = {"Content-Type": FORM} if method == "POST" else {}
            refused = browse.send(method, filled_in, b"", form)

            assert refused.status == 303, path
            assert urlsplit(refused.headers["location"]).path == "/console/sign-in", path


@pytest.mark.parametrize(
    ("base", "own_domain"),
    [("/dev", False), ("/tools/queue", True), ("/console", True), ("/console", False)],
)
@pytest.mark.parametrize(
    ("path", "status"),
    [("/queues/console/", 200), ("/queues/none", 404), ("/no/console/page", 404), ("", 200)],
)
def test_links_forms_and_cookies_have_the_stage_or_the_base_path(
    admin: Browser, base: str, path: str, status: int, *, own_domain: bool
) -> None:
    admin.queue("console")
    browser = replace(admin.another(), stage=base, own_domain=own_domain)
    cookies = browser.get(f"{base}/console/sign-in").cookies.values()
    shown = browser.sign_in().get(f"{base}/console{path}")

    found = {
        one.attributes[name]
        for one in shown.page.walk()
        for name in ("href", "src", "action")
        if name in one.attributes
    }
    assert shown.status == status
    assert {url for url in found if not url.startswith((f"{base}/console", "#"))} == set()
    assert {cookie["path"] for cookie in cookies} == {f"{base}/console"}
