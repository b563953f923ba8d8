"""What a call cost tells a key of its own queues, and nothing of others."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from math import ceil
from typing import Any

import pytest

from headrace.domain.access import Role
from headrace.domain.change import Change
from headrace.domain.task import Task
from headrace.runtime.wiring import Settings, build
from headrace.store.base import Outcome, Record, Refused
from headrace.store.call_scope import charge
from headrace.store.items import to_item
from headrace.store.memory import MemoryStore
from headrace.testing.stores import SHARD, Streamed
from tests.functional.conftest import KEY, Service, contents, fill
from tests.functional.roles import ADMIN, OPERATOR, WORKER, keyed
from tests.manual_clock import ManualClock


def size(task: Task | None) -> int:
    return len(json.dumps(to_item(task))) if task else 1


class Costly(MemoryStore):
    """A store that costs as DynamoDB does: by the size of what is there, refusals included."""

    def commit(self, changes: Sequence[Change], **how: Any) -> list[Outcome]:
        outcomes = super().commit(changes, **how)
        for outcome in outcomes:
            charge(write=ceil(size(outcome.task) / 1024))
            if isinstance(outcome, Refused):
                charge(read=ceil(size(outcome.task) / 4096))
        return outcomes

    def read(
        self, task_ids: Iterable[str], *, payload: bool = True, consistent: bool = True
    ) -> dict[str, Task]:
        wanted = list(task_ids)
        found = super().read(wanted, payload=payload, consistent=consistent)
        charge(read=sum(ceil(size(self._tasks.get(each)) / 4096) for each in wanted))
        return found

    def record(self, kind: str, name: str) -> Record | None:
        found = super().record(kind, name)
        charge(read=ceil(len(repr(found)) / 4096))
        return found

    def records(
        self,
        kind: str,
        *,
        prefix: str = "",
        after: str = "",
        limit: int,
        consistent: bool = True,
    ) -> tuple[Sequence[Record], bool]:
        records, more = super().records(
            kind, prefix=prefix, after=after, limit=limit, consistent=consistent
        )
        charge(read=ceil(len(repr(records)) / 4096))
        return records, more

    def renew_record(self, record: Record) -> Record:
        charge(write=ceil(len(repr((record, super().record(record.kind, record.name)))) / 1024))
        return super().renew_record(record)


class Recorded(Service):
    """A service whose recorder counts what changes."""

    stream: Streamed

    def record(self) -> None:
        self.use.recording.record(SHARD, self.stream.taken())


def empty() -> Recorded:
    clock = ManualClock()
    memory = Costly()
    stream = Streamed(memory, clock)
    call = Recorded(clock, build(Settings(admin_key=KEY), stream.store, now=clock), memory=memory)
    call.stream = stream
    return call


def service() -> Recorded:
    call = empty()
    call.queue("ngsi.a")
    call.put("/v1/queues/ngsi.a", "mine", id="mine")
    call.record()
    return call


LARGE = "x" * 200_000


def crowded() -> Recorded:
    """Return a service with much of others: a copy of the first one."""
    held, at = crowded_first()
    call = empty()
    assert call.memory is not None
    fill(call.memory, held)
    call.clock.forward((at - call.clock()).total_seconds())
    return call


@cache
def crowded_first() -> tuple[dict[str, Any], datetime]:
    """What is in it: queues, keys, workers, tasks, the audit, counts; and the time that it is."""
    call = service()
    call.clock.forward(1)
    for number in range(60):
        queue = call.queue(f"mail.{number}", description="m" * 1000)
        call.put(queue, *range(3), tags={"a": "b"})
        patterns = [f"mail.{one}" for one in range(number)] or ["mail"]
        call("POST", "/v1/keys", {"name": f"k{number}", "role": "viewer", "queues": patterns})
        body = {"queues": ["mail.1"], "concurrency": 1, "running": [], "version": "1"}
        started = {"started_at": "2026-11-21T08:00:00Z"}
        assert call("PUT", f"/v1/workers/w{number}", {**body, **started}).status == 200
    call.put("/v1/queues/mail.1", LARGE, id="other")
    call.record()
    call.clock.forward(60)
    call.put("/v1/queues/mail.1", 1)
    call.record()  # which posts what was counted before
    assert call.memory is not None
    return contents(call.memory), call.clock()


_REPORT = {"task_id": "other", "lease_id": "lse_x", "status": "SUCCEEDED"}
CALLS: dict[str, tuple[Role, str, str, Any]] = {
    "queues": (ADMIN, "GET", "/v1/queues", None),
    "keys": (ADMIN, "GET", "/v1/keys", None),
    "workers": (ADMIN, "GET", "/v1/workers", None),
    "audit": (OPERATOR, "GET", "/v1/audit", None),
    "a queue": (OPERATOR, "GET", "/v1/queues/ngsi.a", None),
    "stats": (OPERATOR, "GET", "/v1/queues/ngsi.a/stats", None),
    "metrics": (OPERATOR, "GET", "/v1/queues/ngsi.a/metrics", None),
    "a list": (OPERATOR, "GET", "/v1/queues/ngsi.a/tasks", None),
    "a task": (OPERATOR, "GET", "/v1/tasks/other", None),
    "deleting a task": (OPERATOR, "DELETE", "/v1/tasks/other", None),
    "a report": (WORKER, "POST", "/v1/queues/ngsi.a/reports", {"reports": [_REPORT]}),
    "a bulk action": (
        OPERATOR, "POST", "/v1/queues/ngsi.a/tasks/delete", {"ids": ["other", "mine"]},
    ),
    "a dry run": (
        OPERATOR, "POST", "/v1/queues/ngsi.a/tasks/run", {"ids": ["other"], "dry_run": True},
    ),
    "a dequeue": (WORKER, "POST", "/v1/queues/ngsi.a/dequeue", {}),
    "a name that is taken": (
        ADMIN, "POST", "/v1/keys", {"name": "k50", "role": "viewer", "queues": ["ngsi.a"]},
    ),
    "a worker that was": (
        WORKER, "PUT", "/v1/workers/w1",
        {"queues": ["ngsi.a"], "concurrency": 1, "running": [], "version": "1",
         "started_at": "2026-11-21T08:00:00Z"},
    ),
}  # fmt: skip


SOME = ("queues", "a list", "deleting a task", "a report")


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        *((name, "ngsi.*") for name in SOME),
        *(
            pytest.param(name, pattern, marks=pytest.mark.slow)
            for pattern in ("ngsi.*", "*.a")
            for name in CALLS
            if (pattern, name in SOME) != ("ngsi.*", True)
        ),
    ],
)
def test_a_call_costs_a_restricted_key_the_same_whatever_others_have(
    name: str, pattern: str
) -> None:
    role, method, path, body = CALLS[name]
    reported = []
    for there in (service, crowded):
        call = there()
        call.clock.forward(600)  # the workers have long been silent
        key = keyed(call, role, pattern)
        answer = key(method, path, body)
        assert answer.status in (200, 201, 403, 409), answer.body
        reported.append(answer.headers["x-consumed-units"])

    if name == "a name that is taken":  # one of the two was made, which is no secret
        reported = [units.partition("r=")[2] for units in reported]
    assert reported[0] == reported[1]


@pytest.mark.parametrize(
    "name",
    [
        "queues",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("keys", "audit", "a bulk action", "a report", "stats", "metrics")
        ),
    ],
)
def test_whoever_is_for_all_queues_is_told_what_it_cost(name: str) -> None:
    role, method, path, body = CALLS[name]
    reported = []
    for there in (service, crowded):
        call = there()
        call.clock.forward(600)
        reported.append(keyed(call, role)(method, path, body))

    one, other = (answer.headers["x-consumed-units"] for answer in reported)
    assert one != other


@pytest.mark.parametrize("how", ["enqueue", "spawn"])
def test_an_id_of_another_queues_task_costs_the_same_whatever_its_size(how: str) -> None:
    reported = []
    for payload in ("small", LARGE):
        clock = ManualClock()  # without a recorder, whose stream reads what is written
        call = Service(clock, build(Settings(admin_key=KEY), Costly(), now=clock))
        call.queue("ngsi.a")
        call.put("/v1/queues/ngsi.a", "mine", id="mine")
        call.queue("mail")
        call.put("/v1/queues/mail", payload, id="other")
        key = keyed(call, WORKER, "ngsi.*")
        if how == "enqueue":
            body: Any = {"tasks": [{"id": "other"}, {"id": "mine"}]}
            answer = key("POST", "/v1/queues/ngsi.a/tasks", body)
        else:
            call.clock.forward(1)
            (held,) = key.take("/v1/queues/ngsi.a")
            report = {"task_id": held["id"], "lease_id": held["lease"]["id"]}
            child = {"queue": "ngsi.a", "id": "other"}
            body = {"reports": [{**report, "status": "SUCCEEDED", "spawn": [child]}]}
            answer = key("POST", "/v1/queues/ngsi.a/reports", body)
        assert answer.json["results"][0]["outcome"] in ("EXISTING", "OK"), answer.body
        reported.append(answer.headers["x-consumed-units"])

    assert reported[0] == reported[1]
    assert not reported[0].startswith("w=0,")


@pytest.mark.parametrize("route", ["tasks", "count"])
def test_looking_for_ids_by_their_beginning_does_not_show_how_many_others_have(route: str) -> None:
    reported = []
    for others in (0, 3):
        clock = ManualClock()
        call = Service(clock, build(Settings(admin_key=KEY), Costly(), now=clock))
        for queue in ("ngsi.a", "mail"):
            call.queue(queue)
        call.put("/v1/queues/ngsi.a", "mine", id="order-1")
        for number in range(others):
            call.put("/v1/queues/mail", number, id=f"order-2{number}")
        key = keyed(call, OPERATOR, "ngsi.*")
        for query in ("id:order-1", "id:order-2", "id:order-"):
            answer = key("GET", f"/v1/queues/ngsi.a/{route}", query={"query": query})
            assert answer.status == 200, answer.body
            reported.append((query, answer.headers["x-consumed-units"], shown(answer.json)))

    assert reported[:3] == reported[3:]


def shown(listed: dict[str, Any]) -> Any:
    """Return the ids of a list, or the number of a count."""
    return [task["id"] for task in listed["tasks"]] if "tasks" in listed else listed["count"]


def test_what_a_restricted_key_does_itself_costs_what_it_costs() -> None:
    call = service()
    key = keyed(call, WORKER, "ngsi.*")

    def cost(payload: str) -> float:
        answer = key("POST", "/v1/queues/ngsi.a/tasks", {"tasks": [{"payload": payload}]})
        return float(answer.headers["x-consumed-units"].split(",")[0].removeprefix("w="))

    assert cost("x") < 5
    assert cost(LARGE) > 190
