"""The API as a client sees it: events of API Gateway into the Lambda handler, answers back.

The store is SQLite in memory, or DynamoDB Local with ``--engine dynamodb``. Tests set the clock.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

import pytest

import api
from headrace import Client
from headrace.http.events import proxy_event as api_gateway_event
from headrace.local.tables import TableNames
from headrace.ops.operators.keys import KeyOperations
from headrace.runtime import service
from headrace.runtime.function import ALWAYS
from headrace.runtime.wiring import Settings, build, using
from headrace.store.base import Store
from headrace.store.dynamo import DynamoStore
from headrace.store.sqlite import SqliteStore
from infra.launch import Launched, launched
from tests.documented import check_documented
from tests.invocation import InvocationContext
from tests.manual_clock import ManualClock
from tests.streamed import SHARD, Streamed

KEY = "a-key-for-the-tests"
REQUEST_ID = "b1946ac9-2d9e-4c38-8a5e-5a5f4b6a1b1a"
HIDDEN = {"payload": "what-is-in-it", "result": "what-came-of-it", "progress": "how-far-it-is"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, its header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def fields(self) -> set[str]:
        """The fields that a problem names."""
        return {error["field"] for error in self.json["errors"]}


@dataclass
class Service:
    """The API; calling it sends a request with the key."""

    clock: ManualClock
    use: service.Service
    key: str | None = KEY
    handler: Callable[[dict[str, Any], Any], dict[str, Any]] = api.handler
    context: Any = field(default_factory=InvocationContext)

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request; a *body* that is text or bytes goes out as it is, the rest as JSON."""
        sent = {**self._headers(), **(headers or {})}
        return self._answer(proxy_event(method, path, body, sent, query))

    def _answer(self, event: dict[str, Any]) -> Answer:
        with using(self.use):
            answer = self.handler(event, self.context)
        for name, value in ALWAYS.items():  # whatever it answers
            assert answer["multiValueHeaders"][name] == [value]
        return Answer(
            answer["statusCode"],
            {name.lower(): values[0] for name, values in answer["multiValueHeaders"].items()},
            answer["body"],
        )

    def keyed(self, admin_key: str | None) -> "Service":
        """Return the same service with another key, or with none, to let clients in."""
        use = copy(self.use)
        use.settings = replace(use.settings, admin_key=admin_key)
        use.keys = KeyOperations(use)
        return replace(self, use=use)

    def polls(self, sleep: Callable[[float], None]) -> None:
        """Let long polls look again after each *sleep*, and wake for nothing else."""
        self.use.deliveries.arrivals = None
        self.use.sleep = sleep

    def _headers(self) -> dict[str, str]:
        sent = {"Content-Type": "application/json"}
        if self.key is not None:
            sent["Authorization"] = f"Bearer {self.key}"
        return sent

    # What most tests begin with.

    def queue(self, name: str = "mail", **settings: Any) -> str:
        """Create a queue and return the path of its tasks' parent."""
        assert self("POST", "/v1/queues", {"name": name, **settings}).status == 201
        return f"/v1/queues/{name}"

    def put(self, queue: str, *payloads: Any, **entry: Any) -> list[str]:
        """Enqueue tasks and return their ids."""
        tasks = [{"payload": payload, **entry} for payload in payloads or ({},)]
        answer = self("POST", f"{queue}/tasks", {"tasks": tasks})
        assert answer.status == 200, answer.body
        return [result["id"] for result in answer.json["results"]]

    def take(self, queue: str, count: int = 1, **call: Any) -> list[dict[str, Any]]:
        """Lease up to *count* tasks once the microseconds between them have passed."""
        self.clock.forward(0.001)
        answer = self("POST", f"{queue}/dequeue", {"batch_size": count, "worker": "ada:1", **call})
        assert answer.status == 200, answer.body
        tasks: list[dict[str, Any]] = answer.json["tasks"]
        return tasks

    def say(self, task: Mapping[str, Any], status: str, **fields: Any) -> dict[str, Any]:
        """Report on a leased task and return the result."""
        report = {"task_id": task["id"], "lease_id": task["lease"]["id"], "status": status}
        path = f"/v1/queues/{task['queue']}/reports"
        answer = self("POST", path, {"reports": [{**report, **fields}]})
        assert answer.status == 200, answer.body
        result: dict[str, Any] = answer.json["results"][0]
        return result

    def see(self, task_id: str) -> dict[str, Any]:
        """Return a task as anyone may see it."""
        shown: dict[str, Any] = self("GET", f"/v1/tasks/{task_id}").json
        return shown


class Counted(Service):
    """A service whose recorder counts when a test calls `record`."""

    stream: Streamed

    def record(self) -> None:
        self.use.recording.record(SHARD, self.stream.taken())

    def stats(self, path: str, **query: str) -> Any:
        answer = self("GET", f"{path}/stats", query=query)
        assert answer.status == 200, answer.body
        check_documented("Stats", answer.json)
        return answer.json

    def metrics(self, path: str, **query: str) -> Any:
        answer = self("GET", f"{path}/metrics", query=query)
        assert answer.status == 200, answer.body
        check_documented("Metrics", answer.json)
        return answer.json


def proxy_event(
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the event that API Gateway's REST API would send."""
    if not isinstance(body, bytes):
        text = body if isinstance(body, str) else "" if body is None else json.dumps(body)
        body = text.encode("utf-8", "surrogatepass")
    return api_gateway_event(
        method,
        path,
        request_id=REQUEST_ID,
        headers=headers or {},
        query=urlencode(query or {}),
        body=body,
    )


@pytest.fixture
def call(request: pytest.FixtureRequest) -> Service:
    """Give a service of one's own: ``call(method, path, body, headers, query)``."""
    if request.config.getoption("--engine") != "dynamodb":
        return new_service()
    tables: TableNames = request.getfixturevalue("tables")
    client = request.getfixturevalue("dynamodb")
    return new_service(DynamoStore(client, tasks_table=tables.tasks, control_table=tables.control))


@pytest.fixture
def filled(call: Service) -> Service:
    """Give a service with queues; two of them have a task in each state and a schedule."""
    for name in ("ngsi.entities", "ngsi.quarantine", "ngsi.notify", "mail"):
        call.queue(name)
    for name in ("ngsi.notify", "mail"):
        call.put(f"/v1/queues/{name}", *[HIDDEN["payload"]] * 3)
        done, running = call.take(f"/v1/queues/{name}", 2)
        call.say(done, "SUCCEEDED", result=HIDDEN["result"])
        call.say(running, "INFLIGHT", progress=HIDDEN["progress"])
        schedule = {"every_seconds": 3600, "payload": HIDDEN["payload"]}
        assert call("PUT", f"/v1/queues/{name}/schedules/nightly", schedule).status == 200
    return call


def new_service(store: Store | None = None) -> Service:
    """Return a service over *store*, else over SQLite in memory, with nothing in it."""
    clock = ManualClock()
    settings = Settings(admin_key=KEY, poll_after_seconds=0.02, settings_ttl_seconds=1)
    return Service(clock, build(settings, store or SqliteStore(":memory:"), now=clock))


@pytest.fixture
def counted() -> Counted:
    """Give a service with a recorder, and nothing in it."""
    clock = ManualClock()
    stream = Streamed(SqliteStore(":memory:"), clock)
    settings = Settings(admin_key=KEY, poll_after_seconds=0.02, settings_ttl_seconds=1)
    service = Counted(clock, build(settings, stream.store, now=clock))
    service.stream = stream
    return service


@pytest.fixture(name="service", scope="module")
def local_service() -> Iterator[Launched]:
    """Give a local service in a process of its own."""
    with launched() as running:
        yield running


@pytest.fixture
def client(service: Launched) -> Iterator[Client]:
    """Give a client of the local service, with its admin key."""
    with Client(service.url, service.admin_key) as client:
        yield client
