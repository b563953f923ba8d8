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


@pytest.mark.parametrize("path", ["/console/tasks//run", "/console/no/such/page"])
def test_an_unknown_path_has_a_page_that_says_so(admin: Browser, path: str) -> None:
    missing = admin.get(path)

    assert missing.status == 404
    assert "Sign out" in missing.text


def test_a_path_is_found_with_a_slash_behind_it_and_a_stage_before_it(admin: Browser) -> None:
    admin.queue("console")
    assert admin.get("/console/queues/console/").status == 200

    staged = replace(admin.another(), stage="/dev").sign_in().get("/dev/console/queues/console")
    links = {link.attributes["href"] for link in staged.page.all("a")}
    assert staged.status == 200
    assert {link for link in links if not link.startswith(("/dev/console", "#"))} == set()


def test_no_event_of_the_console_has_an_authorizer(template: Template) -> None:
    events = template["Resources"]["ConsoleFunction"]["Properties"]["Events"].values()

    assert {event["Properties"]["Auth"]["Authorizer"] for event in events} == {"NONE"}
