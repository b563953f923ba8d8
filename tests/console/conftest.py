"""The console as a browser sees it: events into the Chalice app, cookies kept, HTML read.

The store is in memory and the clock in the test's hand; everything between is the real thing.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from html.parser import HTMLParser
from http.cookies import Morsel, SimpleCookie
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import pytest

from console.app import handler
from headrace.domain.access import Role, ShownKey
from headrace.domain.errors import KeyExists
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import State, Task
from headrace.http.events import proxy_event
from headrace.ops.delivery.reports import ReportStatus, TaskReport, WorkerError
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.ops.shared.audit import AuditFilter, AuditRecord
from headrace.runtime.service import Service
from headrace.runtime.wiring import Settings, build, using
from headrace.store.sqlite import SqliteStore
from headrace.testing.service import HandlerContext
from tests.manual_clock import ManualClock
from tests.streamed import SHARD, Streamed

KEY = "a-key-for-the-tests"
SECRET = "a-secret-for-sessions-of-the-tests"
HOST = "q.example.org"
REQUEST_ID = "b1946ac9-2d9e-4c38-8a5e-5a5f4b6a1b1a"
_VOID = {"meta", "link", "input", "br", "hr", "img", "circle", "path", "rect"}


@dataclass
class Element:
    """An element of a page with what is in it."""

    tag: str
    attributes: dict[str, str]
    children: list["Element | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it, spaces made single."""
        parts = (child if isinstance(child, str) else child.text for child in self.children)
        return " ".join("".join(f"{part} " for part in parts).split())

    def walk(self) -> Sequence["Element"]:
        """Return it and all elements in it, in the order of the page."""
        return self._all

    @cached_property
    def _all(self) -> list["Element"]:  # once a page is read, it stays as it is
        found, waiting = [], [self]
        while waiting:
            found.append(each := waiting.pop())
            waiting += [child for child in reversed(each.children) if isinstance(child, Element)]
        return found

    def all(self, tag: str, **attributes: str) -> list["Element"]:
        """Find elements; ``class_`` is one of the classes."""
        return [each for each in self.walk() if each.tag == tag and each.has(attributes)]

    def one(self, tag: str, **attributes: str) -> "Element":
        found = self.all(tag, **attributes)
        assert len(found) == 1, f"{len(found)} of {tag} {attributes}"
        return found[0]

    def has(self, attributes: Mapping[str, str]) -> bool:
        classes = self.attributes.get("class", "").split()
        return all(
            value in classes if name == "class_" else self.attributes.get(name) == value
            for name, value in attributes.items()
        )


class _Reader(HTMLParser):
    """Builds the tree and minds that every element is closed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("root", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def typed_in(textarea: Element) -> str:
    """Return the text of *textarea* as a browser sends it, without its first line break."""
    return "".join(map(str, textarea.children)).removeprefix("\n").replace("\n", "\r\n")


def read_html(text: str) -> Element:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert [each.tag for each in reader.open] == ["root"], "something was never closed"
    return reader.root


@dataclass(frozen=True)
class Shown:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    cookies: Mapping[str, Morsel[str]]
    body: str
    url: str

    @cached_property
    def page(self) -> Element:
        return read_html(self.body)

    @property
    def text(self) -> str:
        return self.page.text


@dataclass
class Browser:
    """A browser: ``get`` and ``post`` a path, ``submit`` a form of a page; redirects by hand.

    API Gateway puts ``stage`` in front of each path.  With a domain of one's own this is the base
    path of its mapping, which the path of an event then has as well.
    """

    clock: ManualClock
    use: Service
    stage: str = ""
    own_domain: bool = False
    source: str = "192.0.2.7"
    jar: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    stream: Streamed | None = None
    latest: tuple[str, str, bytes, Mapping[str, str]] | None = None

    def get(self, url: str, **headers: str) -> Shown:
        return self.send("GET", url, b"", headers)

    def post(self, url: str, fields: Mapping[str, Any], **headers: str) -> Shown:
        body = urlencode(dict(fields), doseq=True).encode()
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.send("POST", url, body, {**kind, "Sec-Fetch-Site": "same-origin", **headers})

    def submit(self, page: Element, action: str, /, **fields: Any) -> Shown:
        """Send the form whose action ends so, with its own fields and *fields*."""
        form = form_to(page, action)
        own: dict[str, Any] = {}
        for each in form.walk():
            if each.tag == "input" and "name" in each.attributes:
                if each.attributes.get("type") == "checkbox":
                    continue
                value = each.attributes.get("value", "")
                own[each.attributes["name"]] = [*own.get(each.attributes["name"], ()), value]
            if each.tag == "select":
                chosen = [o for o in each.all("option") if "selected" in o.attributes]
                options = chosen or each.all("option")
                own[each.attributes["name"]] = options[0].attributes["value"]
            if each.tag == "textarea":
                own[each.attributes["name"]] = typed_in(each)
        return self.post(target(form, action), {**own, **fields})

    def reload(self) -> Shown:
        """Send the latest request again, a form included, as a browser does."""
        assert self.latest is not None
        return self.send(*self.latest)

    def follow(self, shown: Shown) -> Shown:
        assert shown.status == 303, (shown.status, shown.text)
        return self.get(shown.headers["location"])

    def sign_in(self, key: str = KEY) -> "Browser":
        page = self.get(f"{self.stage}/console/sign-in").page
        assert self.submit(page, "/sign-in", key=key).status == 303
        return self

    def record(self) -> None:
        """Count what changed since, as the recorder does a second later."""
        if self.stream is not None:
            self.use.recording.record(SHARD, self.stream.taken())

    def send(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Shown:
        self.record()
        self.latest = (method, url, body, headers)
        parts = urlsplit(url)
        ours = parts.path.removeprefix(self.stage)
        resource, names = gateway_route(ours)
        sent = {"Host": HOST, "X-Forwarded-Proto": "https", **self.headers, **headers}
        if self.jar:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.jar.items())
        event = proxy_event(
            method,
            parts.path if self.own_domain else ours,
            request_id=REQUEST_ID,
            headers=sent,
            query=parts.query,
            body=body,
            resource=resource,
            parameters=names,
            source_ip=self.source,
            base="" if self.own_domain else self.stage,
        )
        with using(self.use):
            answer = handler(event, HandlerContext())
        cookies: dict[str, Morsel[str]] = {}
        for line in answer["multiValueHeaders"].get("Set-Cookie", []):
            cookies |= SimpleCookie(line)
        for name, morsel in cookies.items():
            if morsel["max-age"] == "0":
                self.jar.pop(name, None)
            else:
                self.jar[name] = morsel.value
        lower = {name.lower(): value for name, value in answer["headers"].items()}
        return Shown(answer["statusCode"], lower, cookies, answer["body"], url)

    def another(self) -> "Browser":
        """Return a second browser of the same console."""
        return replace(self, jar={}, headers={})

    # What most tests begin with.

    def key(self, role: Role, *queues: str) -> str:
        """Make a key and return its secret: the first is "the admin", as may be."""
        for number in count(1):
            name = f"the {role}" if number == 1 else f"the {role} {number}"
            with suppress(KeyExists):
                return self.use.keys.create(BOOTSTRAP, name, role, queues or ("*",)).secret
        raise AssertionError

    def as_role(self, role: Role, *queues: str) -> "Browser":
        return self.another().sign_in(self.key(role, *queues))

    def queue(self, name: str = "mail", **settings: Any) -> str:
        self.use.queues.create(name, QueueSettings(**settings))
        return name

    def put(self, queue: str, *payloads: str, **more: Any) -> list[str]:
        new = [TaskSpec(payload, **more) for payload in payloads or ("{}",)]
        return [str(done.id) for done in self.use.tasks.enqueue(queue, new)]

    def take(self, queue: str, count: int = 1, worker: str = "ada:1") -> Sequence[Task]:
        self.clock.forward(0.001)
        return self.use.deliveries.dequeue(queue, batch_size=count, worker=worker).tasks

    def say(self, task: Task, status: ReportStatus, **more: Any) -> None:
        report = TaskReport(task.id, task.lease_id or "", status, **more)
        [result] = self.use.reports.report(task.queue, [report])
        assert result.outcome == "OK", result

    # What the service holds afterwards.

    def task(self, task_id: str) -> Task:
        return self.use.tasks.get(task_id)

    def settings(self, queue: str) -> QueueSettings:
        return self.use.queues.get(queue).settings

    def count(self, queue: str, state: State | None = None) -> int:
        counted = self.use.inspect.count(queue)
        return counted.count if state is None else counted.by_state[state]

    def audited(self, action: str) -> Sequence[AuditRecord]:
        return self.use.audit.list(AuditFilter(action=action)).shown

    def api_keys(self) -> Sequence[ShownKey]:
        return self.use.keys.list(BOOTSTRAP).shown

    def save(self, queue: str, **fields: str) -> None:
        """Change settings by the form, and confirm what it shows."""
        form = self.get(f"/console/queues/{queue}/settings").page
        shown = self.submit(form, f"/{queue}/settings", **fields)
        assert shown.status == 200, shown.text
        self.follow(self.submit(shown.page, f"/{queue}/settings"))

    def kill(self, queue: str, payload: str = "{}", message: str = "no answer") -> str:
        """Enqueue a task where none is ready, and let it die; return its id."""
        [task_id] = self.put(queue, payload)
        [task] = self.take(queue)
        assert task.id == task_id
        error = WorkerError("TimeoutError", message, "Traceback: …")
        self.say(task, ReportStatus.FAILED, error=error, retryable=False)
        return task_id


def form_to(page: Element, action: str) -> Element:
    """Return the form that goes to *action*, by itself or by one of its buttons."""
    found = [f for f in page.all("form") if target(f, action)]
    assert len(found) == 1, f"{len(found)} forms to {action}"
    return found[0]


def target(form: Element, action: str) -> str:
    """Return the address that ends so, of *form* or of one of its buttons; empty for none."""
    places = [form.attributes["action"]]
    places += [button.attributes.get("formaction", "") for button in form.all("button")]
    return next((url for url in places if urlsplit(url).path.endswith(action)), "")


def gateway_route(path: str) -> tuple[str, dict[str, str]]:
    """Return the route of template.yaml that API Gateway takes for *path*, and its parameters."""
    bare = path.rstrip("/")
    if bare in ("/console", "/console/sign-in"):
        return bare, {}
    return "/console/{proxy+}", {"proxy": unquote(bare.removeprefix("/console/"))}


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


@pytest.fixture
def browse() -> Browser:
    """Give a browser that has not signed in, of a console with nothing in it."""
    clock = ManualClock()
    settings = Settings(admin_key=KEY, settings_ttl_seconds=1, session_secret=SECRET)
    stream = Streamed(SqliteStore(":memory:"), clock)
    return Browser(clock, build(settings, stream.store, now=clock), stream=stream)


@pytest.fixture
def admin(browse: Browser) -> Browser:
    """Give a browser that has signed in with the deployment's own key."""
    return browse.sign_in()


@pytest.fixture
def filled(admin: Browser) -> Browser:
    """Give an admin a console with tasks in every state."""
    for name in ("mail", "ngsi.notify"):
        admin.queue(name, retry_strategy=RetryStrategy(max_retries=1))
        admin.kill(name)
        admin.put(name, *['{"to": "ada"}'] * 3, tags={"service": "smartcity"})
        done, *_running = admin.take(name, 3 if name == "mail" else 2)
        admin.say(done, ReportStatus.SUCCEEDED, result='{"sent": true}')
        admin.put(name, delay_in_seconds=600)
    admin.queue("empty", description="Nothing ever comes here.")
    return admin
