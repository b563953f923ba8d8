"""More children than one report takes: all of them once, or none."""

from collections import Counter
from collections.abc import Iterator

import pytest

from headrace import App, Context
from headrace.testing import MemoryService

app = App(queue="work")
seen: Counter[int] = Counter()


@app.task
def child(number: int) -> None:
    seen[number] += 1


@app.task(max_retries=1)
def parent(ctx: Context, number: int, fail: bool = False, batch: str | None = None) -> None:  # noqa: FBT001, FBT002 (an argument of a task)
    for one in range(number):
        ctx.spawn(child, {"number": one}, batches=[batch] if batch else None)
    if fail and ctx.attempt == 1:
        raise RuntimeError("not this time")


@app.task(queue="told")
def told(ctx: Context) -> None:
    seen[-1] += 1
    assert sum(seen.values()) - 1 == 100


@pytest.fixture
def service() -> Iterator[MemoryService]:
    seen.clear()
    with MemoryService() as made, made.serving(app):
        app.ensure_queues()
        yield made


@pytest.mark.parametrize("number", [24, 25, 200, pytest.param(1_500, marks=pytest.mark.slow)])
def test_all_of_them_come_once(service: MemoryService, number: int) -> None:
    parent.enqueue(number)

    service.run(app, limit=5_000)

    assert seen == dict.fromkeys(range(number), 1)


def test_of_an_attempt_that_fails_none_comes(service: MemoryService) -> None:
    parent.enqueue(100, fail=True)

    service.run(app)
    assert not seen
    service.run(app, until_settled=True)

    assert seen == dict.fromkeys(range(100), 1)
