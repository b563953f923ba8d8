"""A service of queues and schedules in memory, and attempts at tasks, for tests of apps."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx2 as httpx
import msgspec

from headrace import App, AsyncClient, Client, Codec, Report
from headrace.client.codec import PLAIN, remember_codec
from headrace.wire.tasks import LeasedTask

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
AT = "2026-11-21T08:00:00.000000Z"
LEASE_END = datetime(2026, 11, 21, 8, 0, 30, tzinfo=UTC)


@dataclass
class FakeHttp(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Keeps what it is sent; ``may_create`` and ``may_schedule`` say what the key may."""

    queues: dict[str, Any] = field(default_factory=dict)
    tasks: list[dict[str, Any]] = field(default_factory=list)
    schedules: dict[str, dict[str, Any]] = field(default_factory=dict)
    may_create: bool = True
    may_schedule: bool = True
    outcome: str = "CREATED"
    calls: list[str] = field(default_factory=list)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self.answer(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.answer(request)

    def answer(self, request: httpx.Request) -> httpx.Response:  # noqa: PLR0911 (a table of routes)
        parts = request.url.path.split("/")[2:]
        body: Any = json.loads(request.content) if request.content else None
        self.calls.append(f"{request.method} {'/'.join(parts)}")
        match [request.method, *parts]:
            case ["POST", "queues"]:
                if not self.may_create:
                    return problem(403, "forbidden")
                self.queues[body["name"]] = body
                return reply(201, queue_view(body["name"]))
            case [_, "queues", queue, *_] if queue not in self.queues:
                return problem(404, "not_found")
            case ["GET", "queues", queue]:
                schedules = list(self.schedules.values())
                return reply(200, {**queue_view(queue), "schedules": schedules})
            case ["POST", "queues", queue, "tasks"]:
                return self.enqueue(queue, body["tasks"])
            case ["GET", "queues", _, "schedules"]:
                return reply(200, {"schedules": list(self.schedules.values()), "cursor": None})
            case ["GET", "queues", _, "schedules", name]:
                found = self.schedules.get(name)
                return reply(200, found) if found else problem(404, "not_found")
            case ["PUT", "queues", _, "schedules", name]:
                if not self.may_schedule:
                    return problem(403, "forbidden")
                self.schedules[name] = schedule_view(name, body)
                return reply(200, self.schedules[name])
            case _:
                raise AssertionError(f"not asked for in these tests: {self.calls[-1]}")

    def enqueue(self, queue: str, entries: list[dict[str, Any]]) -> httpx.Response:
        results = []
        for entry in entries:
            if self.outcome != "INVALID":
                self.tasks.append({**entry, "queue": queue})
            results.append(
                {"outcome": self.outcome, "id": entry.get("id"), "task": None, "detail": "too late"}
            )
        return reply(200, {"results": results})

    def client(self, codec: Codec = PLAIN) -> Client:
        return Client("https://test", "key", transport=self, retries=0, codec=codec)

    def app(self, codec: Codec = PLAIN, **settings: Any) -> App:
        async_client = AsyncClient("https://test", "key", transport=self, retries=0, codec=codec)
        return App(self.client(codec), async_client=async_client, now=lambda: NOW, **settings)


@dataclass
class FakeControl:
    """What a worker gives an attempt, in the test's hand."""

    lost: bool = False
    cancelled: bool = False
    stopping: bool = False
    lease_expires_at: datetime = LEASE_END
    shown: list[object] = field(default_factory=list)

    def progress(self, value: object) -> None:
        self.shown.append(value)


def leased(payload: Any = None, *, queue: str = "mail", codec: Codec = PLAIN, **more: Any) -> Any:
    """Return a task as a worker gets it."""
    task = msgspec.json.decode(
        msgspec.json.encode(
            {
                "id": "tsk_1",
                "queue": queue,
                "state": "INFLIGHT",
                "status": "INFLIGHT",
                "tags": {},
                "dedupe_key": None,
                "created_at": AT,
                "scheduled_at": AT,
                "expires_at": None,
                "attempts": 1,
                "max_retries": 5,
                "keepalive_timeout_in_seconds": None,
                "lease_expires_at": LEASE_END,
                "worker": "w",
                "started_at": AT,
                "finished_at": None,
                "dead_reason": None,
                "errors": [],
                "trail": [],
                "retained_until": None,
                "schedule": None,
                "payload": msgspec.Raw(codec.encode(payload)),
                "lease": {"id": "lse_1", "expires_at": LEASE_END},
                **more,
            }
        ),
        type=LeasedTask,
    )
    remember_codec(task, codec)
    return task


def run(app: App, payload: Any = None, held: FakeControl | None = None, **more: Any) -> Report:
    """Run one attempt, and return its report."""
    report = app.execute(leased(payload, **more), held or FakeControl())
    assert report is not None
    return report


def call(name: str, **args: Any) -> dict[str, Any]:
    """Return the payload of a call."""
    return {"task": name, "args": args}


def reply(status: int, body: Any) -> httpx.Response:
    return httpx.Response(status, content=json.dumps(body).encode())


def problem(status: int, code: str) -> httpx.Response:
    return reply(status, {"code": code, "status": status, "detail": "no", "errors": []})


def queue_view(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": "",
        "keepalive_timeout_in_seconds": 30,
        "expires_in_seconds": 1209600,
        "retry_strategy": {},
        "dequeuing_settings": {},
        "dead_letter_queue_config": {},
        "history_retention_in_seconds": 86400,
        "shards": 1,
        "created_at": AT,
        "updated_at": AT,
        "version": 1,
    }


def schedule_view(name: str, body: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "cron": None,
        "every_seconds": None,
        "timezone": "UTC",
        "tags": {},
        "dedupe_key": None,
        "expires_in_seconds": None,
        "keepalive_timeout_in_seconds": None,
        "retry_strategy": None,
        "last_run_at": None,
        "next_run_at": None,
        "created_at": AT,
        "updated_at": AT,
    }
    return {**empty, **body, "name": name}
