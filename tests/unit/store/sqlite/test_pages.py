"""The file read in bulk: every task that is there is on one page, and no page is large."""

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.domain.ids import LeaseName
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import QueueSettings
from headrace.domain.task import Place, State
from headrace.ops.delivery.reports import ReportStatus, TaskReport
from headrace.runtime.wiring import Settings, UseCases, build
from headrace.store.items import ATTRIBUTES, to_item
from headrace.store.sqlite import SqliteStore, pages
from tests.manual_clock import ManualClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "headrace.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(path: Path, clock: ManualClock) -> Iterator[SqliteStore]:
    store = SqliteStore(str(path), now=clock)
    yield store
    store.close()


@pytest.fixture
def use(store: SqliteStore, clock: ManualClock) -> UseCases:
    use = build(Settings(admin_key="test"), store, now=clock)
    use.queues.create("mail", QueueSettings(history_retention_in_seconds=0))
    use.queues.create("post", QueueSettings())
    return use


def enqueue(use: UseCases, number: int, payload: str = "{}", queue: str = "mail") -> set[str]:
    tags = {"n": "1"}
    ids: set[str] = set()
    for start in range(0, number, 25):
        new = [TaskSpec(payload, tags=tags)] * min(25, number - start)
        ids |= {str(done.id) for done in use.tasks.enqueue(queue, new)}
    return ids


def settle(use: UseCases, clock: ManualClock, status: ReportStatus, number: int) -> None:
    clock.forward(1)
    tasks = use.deliveries.dequeue("mail", batch_size=number, worker="w").tasks
    to = "post" if status is ReportStatus.MOVED else None
    reports = [TaskReport(task.id, str(LeaseName.of(task)), status, to_queue=to) for task in tasks]
    use.reports.report("mail", reports)


class Scan:
    """One part, read page by page."""

    def __init__(self, use: UseCases, store: SqliteStore, part: tuple[int, int]) -> None:
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
    use: UseCases, store: SqliteStore, number: int
) -> None:
    ids = enqueue(use, 100)

    parts = store.pages().parts(number)
    found = [item["task_id"]["S"] for part in parts for item in Scan(use, store, part).rest()]

    assert len(parts) == number
    assert sorted(found) == sorted(ids)


def test_an_empty_file_has_empty_parts(use: UseCases, store: SqliteStore) -> None:
    assert [Scan(use, store, part).rest() for part in store.pages().parts(3)] == [[], [], []]


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 20))]
)
def test_what_is_there_all_the_while_is_seen_once_whatever_happens_meanwhile(
    use: UseCases,
    store: SqliteStore,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(pages, "_ROWS", 4)
    before = enqueue(use, 40)
    scans = [Scan(use, store, part) for part in store.pages().parts(3)]
    seen: Counter[str] = Counter()
    while waiting := [scan for scan in scans if not scan.over]:
        seen.update(item["task_id"]["S"] for item in chance.choice(waiting).next())
        enqueue(use, chance.randrange(3))
        settle(use, clock, chance.choice([ReportStatus.MOVED, ReportStatus.SUCCEEDED]), 2)

    there = store.read(before)
    assert 0 < len(there) < len(before)  # some have succeeded, and are kept for no time
    assert set(there) <= set(seen)
    assert set(seen.values()) == {1}


def test_items_are_as_dynamodb_has_them(use: UseCases, store: SqliteStore) -> None:
    enqueue(use, 3, '{"é": "\U0001f600"}')
    (task,) = use.deliveries.dequeue("mail", batch_size=1, worker="w").tasks
    (part,) = store.pages().parts(1)
    items = {item["task_id"]["S"]: item for item in Scan(use, store, part).rest(*ATTRIBUTES)}

    assert items == {id_: to_item(one) for id_, one in store.read(items).items()}
    narrow = ("task_id", "queue#state", "scheduled_at", "expires_at", "ttl", "payload")
    for item in Scan(use, store, part).rest(*narrow):
        whole = items[item["task_id"]["S"]]
        assert item == {name: whole[name] for name in narrow if name in whole}
    assert items[task.id]["lease"]["M"]["id"] == {"S": task.lease_id}


def test_what_is_left_of_a_task_that_is_gone_is_on_no_page(
    use: UseCases, store: SqliteStore, clock: ManualClock
) -> None:
    kept = enqueue(use, 5)
    settle(use, clock, ReportStatus.SUCCEEDED, 2)
    (part,) = store.pages().parts(1)

    found = {item["task_id"]["S"] for item in Scan(use, store, part).rest("task_id", "tags")}

    assert found == set(store.read(kept))
    assert len(found) == 3


def test_no_page_is_much_larger_than_a_megabyte(use: UseCases, store: SqliteStore) -> None:
    payload = json.dumps("x" * 200_000)
    enqueue(use, 25, payload)
    (part,) = store.pages().parts(1)
    scan = Scan(use, store, part)

    assert len(scan.rest("task_id", "payload")) == 25
    assert max(scan.sizes) < 1_300_000
    assert len(Scan(use, store, part).next("task_id")) == 25  # which needs no payload


def test_a_partition_is_read_in_order_and_in_pages(
    use: UseCases, store: SqliteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_ROWS", 4)
    ids = enqueue(use, 18)
    settle(use, clock, ReportStatus.MOVED, 2)
    place, found, start = Place("mail", State.ENQUEUED, 0), [], None
    while True:
        page = json.loads(store.pages().entries(place, now=use.tasks.now(), start=start))
        found += [item["task_id"]["S"] for item in page["Items"]]
        start = page.get("LastEvaluatedKey")
        if start is None:
            break

    assert found == [entry.task_id for entry in store.entries(place, limit=100).entries]
    assert len(found) == 16
    named = json.loads(store.pages().tasks([*ids, "none"], attributes=("task_id", "queue#state")))
    assert {item["task_id"]["S"] for item in named["Items"]} == ids


def test_who_reads_page_by_page_keeps_nobody_from_emptying_the_log(
    use: UseCases, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_ROWS", 4)
    enqueue(use, 20)
    (part,) = store.pages().parts(1)
    scan = Scan(use, store, part)
    scan.next()
    enqueue(use, 20)

    with sqlite3.connect(path) as other:
        busy, log, moved = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    assert (busy, log, moved) == (0, 0, 0)
    assert not scan.over
