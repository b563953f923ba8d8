"""The console's function: an operator signs in with a key, opens every page, pauses a queue."""

import html
import os
import re
from http.cookies import SimpleCookie
from urllib.parse import urlencode

import pytest
import urllib3

from headrace import Client

pytestmark = pytest.mark.gate


class Visitor:
    """Send requests as a browser does, under the deployment's own domain, and keep cookies."""

    def __init__(self) -> None:
        self._cookies: dict[str, str] = {}

    def send(
        self, method: str, path: str, fields: dict[str, str] | None = None
    ) -> urllib3.BaseHTTPResponse:
        headers = {
            "Host": os.environ["HEADRACE_HOST"],
            "X-Forwarded-Proto": "https",
            "Cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items()),
        }
        if fields is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            headers["Sec-Fetch-Site"] = "same-origin"
        answer = urllib3.request(
            method,
            os.environ["HEADRACE_URL"] + path,
            body=None if fields is None else urlencode(fields),
            headers=headers,
            redirect=False,
            timeout=60,
        )
        for line in answer.headers.getlist("set-cookie"):
            for name, cookie in SimpleCookie(line).items():
                self._cookies[name] = cookie.value
        return answer

    def submit(self, page: str, action: str, **fields: str) -> urllib3.BaseHTTPResponse:
        """Send the form of *page* whose action ends in *action*, with its hidden fields."""
        for path, form in re.findall(
            r'<form[^>]* action="([^"]+)"[^>]*>(.*?)</form>', page, re.DOTALL
        ):
            if path.partition("?")[0].endswith(action):
                hidden = re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form)
                own = {name: html.unescape(value) for name, value in hidden}
                return self.send("POST", html.unescape(path), {**own, **fields})
        raise AssertionError(f"no form for {action}")


PAGES = (
    *("", "/activity", "/create-key", "/create-queue", "/workflows", "/workflows/e2e-batch"),
    *("/create-schedule", "/errors", "/keys", "/pipelines", "/proof", "/queues/e2e.console"),
    *("/queues/e2e.console/delete", "/queues/e2e.console/purge", "/queues/e2e.console/settings"),
    *("/queues/e2e.console/schedules/nightly", "/schedules", "/tasks/e2e-task", "/workers"),
    *("/queues/e2e.console/schedules/nightly/edit", "/tasks/e2e-task/enqueue"),
)


@pytest.fixture(scope="module")
def visitor() -> Visitor:
    """Give an operator with a session."""
    visitor = Visitor()
    page = visitor.send("GET", "/console/sign-in").data.decode()
    assert visitor.submit(page, "/sign-in", key=os.environ["HEADRACE_KEY"]).status == 303
    return visitor


def test_every_page_opens(client: Client, visitor: Visitor) -> None:
    client.create_queue("e2e.console")
    client.enqueue("e2e.console", id="e2e-task", delay_in_seconds=3600)
    client.put_schedule("e2e.console", "nightly", cron="0 3 * * *")
    client.create_batch(id="e2e-batch")

    opened = {page: visitor.send("GET", f"/console{page}").status for page in PAGES}

    assert {page: status for page, status in opened.items() if status != 200} == {}


def test_an_operator_pauses_a_queue(client: Client, visitor: Visitor) -> None:
    door = Visitor().send("GET", "/console")
    assert (door.status, door.headers["location"].partition("?")[0]) == (303, "/console/sign-in")
    page = Visitor().send("GET", "/console/sign-in")
    style = re.search(r'href="([^"]*/console/static/[^"]+\.css[^"]*)"', page.data.decode())
    assert style is not None
    sheet = visitor.send("GET", html.unescape(style[1]))
    assert (sheet.status, sheet.headers["content-type"]) == (200, "text/css; charset=utf-8")
    queue = visitor.send("GET", "/console/queues/e2e.console")
    assert visitor.submit(queue.data.decode(), "/e2e.console/pause").status == 303

    assert client.get_queue("e2e.console").pause
