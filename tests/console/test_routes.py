"""The app's routes against the template that leads to them, and against a real service."""

import contextlib
import http.client
import re
from urllib.parse import urlencode, urlsplit

import pytest

from console.app import FORM, app
from console.chalicelib.routes import routes as console_routes
from console.chalicelib.urls import Urls
from headrace.local.launch import launched
from headrace.local.tables import Template, routes
from infra.template import load_template
from tests.console.conftest import KEY, Browser, read_html


@pytest.fixture(scope="module")
def template() -> Template:
    return load_template()


def test_the_template_has_one_route_for_all_pages(template: Template) -> None:
    declared = {
        (route.method, route.path)
        for route in routes(template)
        if route.function.name == "ConsoleFunction"
    }

    sign_in = {("GET", "/console/sign-in"), ("POST", "/console/sign-in")}  # have their own limit
    assert declared == sign_in | {("ANY", "/console"), ("ANY", "/console/{proxy+}")}


@pytest.mark.parametrize("end", ["", "/"])
def test_every_path_of_the_app_is_found(end: str) -> None:
    for path in app.routes:
        names = re.findall(r"\{(\w+)\+?\}", path)
        sent = re.sub(r"\{(\w+)\+?\}", r"a \1", path).replace(" ", "%20")

        assert console_routes.find(sent + end) == (path, {name: f"a {name}" for name in names})


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/console/queues/edit", "/console/queues/{queue}"),
        ("/console/tasks/x/enqueue", "/console/tasks/{id}/enqueue"),
        ("/console/tasks/x/run", "/console/tasks/{id}/{action}"),
        ("/console/tasks//run", "/console/{path+}"),
        ("/console/queues/{queue}/{path+}/{x}", "/console/{path+}"),
        ("/console/no/such/page", "/console/{path+}"),
        ("/console/" + "a/" * 2_000, "/console/{path+}"),
    ],
)
def test_the_most_specific_route_is_taken_and_any_other_path_has_a_page(
    path: str, found: str
) -> None:
    assert console_routes.find(path)[0] == found


def test_a_method_that_a_page_does_not_take_is_refused(browse: Browser) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
        refused = browse.send(method, "/console/queues/mail", b"", {})

        assert refused.status == 405
        assert refused.headers["allow"] == "GET"
        assert refused.headers["x-frame-options"] == "DENY"


def test_head_is_answered_as_get(admin: Browser) -> None:
    admin.queue("mail")

    assert admin.send("HEAD", "/console/queues/mail", b"", {}).status == 200
    assert admin.send("HEAD", "/console/queues/none", b"", {}).status == 404


def test_no_event_of_the_console_has_an_authorizer(template: Template) -> None:
    events = template["Resources"]["ConsoleFunction"]["Properties"]["Events"].values()

    assert {event["Properties"]["Auth"]["Authorizer"] for event in events} == {"NONE"}


def test_forms_are_taken_only_as_forms() -> None:
    forms = [methods["POST"] for methods in app.routes.values() if "POST" in methods]

    assert {tuple(form.content_types) for form in forms} == {(FORM,)}


def test_everybody_may_see_the_door_and_nothing_behind_it() -> None:
    open_routes = {
        (route.method, route.path.removeprefix("/console"))
        for route in console_routes.found
        if route.needs is None
    }

    assert open_routes == {
        ("GET", "/sign-in"),
        ("POST", "/sign-in"),
        ("GET", "/static/{name}"),
        ("GET", "/{path+}"),
    }


@pytest.mark.parametrize(
    ("path", "resource", "base"),
    [
        ("/console", "/console", ""),
        ("/console/", "/console", ""),
        ("/dev/console", "/console", "/dev"),
        ("/dev/console/queues/console", "/console/queues/{queue}", "/dev"),
        ("/a/b/console/tasks/x/run", "/console/tasks/{id}/{action}", "/a/b"),
        ("/dev/console/no/such/page", "/console/{path+}", "/dev"),
    ],
)
def test_what_stands_before_our_paths_is_read_from_the_request(
    path: str, resource: str, base: str
) -> None:
    event = {"path": path, "requestContext": {"path": path, "resourcePath": resource}}

    assert Urls.of(event).base == base


@pytest.mark.slow
def test_the_local_service_serves_the_console() -> None:
    with launched(admin_key=KEY) as service, contextlib.ExitStack() as closing:
        where = urlsplit(service.url)
        connection = http.client.HTTPConnection(where.netloc, timeout=30)
        closing.callback(connection.close)

        def ask(
            method: str, path: str, fields: dict[str, str] | None = None, cookie: str = ""
        ) -> tuple[http.client.HTTPResponse, str]:
            form = {"Content-Type": FORM} if fields else {}
            connection.request(method, path, urlencode(fields or {}), {"Cookie": cookie, **form})
            answer = connection.getresponse()
            return answer, answer.read().decode()

        door, page = ask("GET", "/console/sign-in")
        token = read_html(page).one("input", name="token").attributes["value"]
        cookie = str(door.headers["Set-Cookie"]).partition(";")[0]
        entered, _ = ask("POST", "/console/sign-in", {"key": KEY, "token": token}, cookie)
        session = next(
            line.partition(";")[0]
            for line in entered.headers.get_all("Set-Cookie") or []
            if line.startswith("headrace_session=")
        )
        queues, shown = ask("GET", "/console/", cookie=session)
        style = re.findall(r'href="(/console/static/[^"]+css)"', shown)[0]

        assert (entered.status, entered.headers["Location"]) == (303, "/console")
        assert queues.status == 200
        assert "headrace queue create mail" in shown
        assert ask("GET", style)[0].status == 200
