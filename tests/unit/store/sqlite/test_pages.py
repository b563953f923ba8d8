"""The file read in bulk: every task that is there is on one page, and no page is large."""

import json
from typing import Any

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import Place
from headrace.domain.times import micros_of
from headrace.runtime.service import Service
from headrace.runtime.wiring import Settings, build
from headrace.store.items import EVER, Between
from headrace.store.sqlite import SqliteStore
from tests.manual_clock import ManualClock


@pytest.fixture
def use(store: SqliteStore, clock: ManualClock) -> Service:
    use = build(Settings(admin_key="test"), store, now=clock)
    use.queues.create("mail", QueueSettings(history_retention_in_seconds=0))
    use.queues.create("post", QueueSettings())
    return use


def enqueue(use: Service, number: int, payload: str = "{}", queue: str = "mail") -> set[str]:
    tags = {"n": "1"}
    ids: set[str] = set()
    for start in range(0, number, 25):
        new = [TaskSpec(payload, tags=tags)] * min(25, number - start)
        ids |= {str(done.id) for done in use.tasks.enqueue(queue, new)}
    return ids


class Scan:
    """One part, read page by page."""

    def __init__(self, use: Service, store: SqliteStore, part: tuple[int, int]) -> None:
        self._use, self._pages, self._part = use, store.pages(), part
        self._start: Any = None
        self.sizes: list[int] = []
        self.over = False

    def next(self, *attributes: str) -> list[dict[str, Any]]:
        text = self._pages.scan(
            self._part,
            attributes=attributes or ("task_id",),
            now=self._use.tasks.now(),
            start=self._start,
        )
        self.sizes.append(len(text))
        page = json.loads(text)
        self._start = page.get("LastEvaluatedKey")
        self.over = self._start is None
        return list(page["Items"])

    def rest(self, *attributes: str) -> list[dict[str, Any]]:
        items = []
        while not self.over:
            items += self.next(*attributes)
        return items


@pytest.mark.parametrize("number", [1, 3, 7, 200])
def test_the_parts_together_have_every_task_once(
    use: Service, store: SqliteStore, number: int
) -> None:
    ids = enqueue(use, 100)

    parts = store.pages().parts(number)
    found = [item["task_id"]["S"] for part in parts for item in Scan(use, store, part).rest()]

    assert len(parts) == number
    assert sorted(found) == sorted(ids)


def test_no_page_is_much_larger_than_a_megabyte(use: Service, store: SqliteStore) -> None:
    payload = json.dumps("x" * 200_000)
    enqueue(use, 25, payload)
    (part,) = store.pages().parts(1)
    scan = Scan(use, store, part)

    assert len(scan.rest("task_id", "payload")) == 25
    assert max(scan.sizes) < 1_300_000
    assert len(Scan(use, store, part).next("task_id")) == 25  # which needs no payload


def test_a_file_without_tasks_has_parts_without_any(use: Service, store: SqliteStore) -> None:
    parts = store.pages().parts(2)

    assert parts == [(0, 0), (0, 0)]
    assert Scan(use, store, parts[0]).rest() == []


def entries(use: Service, store: SqliteStore, place: Place, between: Between) -> list[str]:
    """Return the ids of the tasks of one partition of the index, read page by page."""
    ids: list[str] = []
    start: Any = None
    while True:
        text = store.pages().entries(place, now=use.tasks.now(), start=start, between=between)
        page = json.loads(text)
        ids += [item["task_id"]["S"] for item in page["Items"]]
        start = page.get("LastEvaluatedKey")
        if start is None:
            return ids


def test_a_partition_of_the_index_is_read_by_time(
    use: Service, store: SqliteStore, clock: ManualClock
) -> None:
    payload = json.dumps("x" * 100_000)
    (first,) = enqueue(use, 1, payload, queue="post")
    place = store.read([first])[first].place
    before = micros_of(clock())
    clock.forward(1)
    enqueue(use, 40, payload, queue="post")
    here = [
        one for one in store.read(sorted(everything(use, store))).values() if one.place == place
    ]

    assert sorted(entries(use, store, place, EVER)) == sorted(task.id for task in here)
    assert entries(use, store, place, (0, before)) == [first]


def everything(use: Service, store: SqliteStore) -> set[str]:
    (part,) = store.pages().parts(1)
    return {item["task_id"]["S"] for item in Scan(use, store, part).rest()}


def test_tasks_are_read_by_their_ids_with_what_is_asked_for(
    use: Service, store: SqliteStore, clock: ManualClock
) -> None:
    (there,) = enqueue(use, 1, '"letter"')

    page = json.loads(
        store.pages().tasks([there, "tsk_none"], attributes=("task_id", "payload", "state"))
    )

    (item,) = page["Items"]
    assert (item["task_id"], item["payload"]) == ({"S": there}, {"S": '"letter"'})


def test_tasks_with_a_time_limit_and_a_retention_show_both(
    use: Service, store: SqliteStore
) -> None:
    use.queues.create("brief", QueueSettings(expires_in_seconds=10))
    (cancelled, *_) = sorted(enqueue(use, 2, queue="brief"))
    use.cancelling.cancel(cancelled)
    (part,) = store.pages().parts(1)

    items = Scan(use, store, part).rest("task_id", "expires_at", "ttl", "payload")

    by_id = {item["task_id"]["S"]: item for item in items}
    assert all("expires_at" in item for item in items)
    assert "ttl" in by_id[cancelled]
