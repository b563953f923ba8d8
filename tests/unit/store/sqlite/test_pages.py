"""The file read in bulk: every task that is there is on one page, and no page is large."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.queue import QueueSettings
from headrace.runtime.wiring import Settings, UseCases, build
from headrace.store.sqlite import SqliteStore
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


def test_no_page_is_much_larger_than_a_megabyte(use: UseCases, store: SqliteStore) -> None:
    payload = json.dumps("x" * 200_000)
    enqueue(use, 25, payload)
    (part,) = store.pages().parts(1)
    scan = Scan(use, store, part)

    assert len(scan.rest("task_id", "payload")) == 25
    assert max(scan.sizes) < 1_300_000
    assert len(Scan(use, store, part).next("task_id")) == 25  # which needs no payload
