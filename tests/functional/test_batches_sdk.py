"""Batches as programs use them: filled in a block, told to a function, tested in memory."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import App, Context
from headrace.domain.errors import BatchExists
from headrace.testing import MemoryService

app = App(queue="work")
told: list[tuple[int, int, list[int]]] = []


@app.task
def square(number: int) -> int:
    if number < 0:
        raise ValueError("no square of that here")
    return number * number


@app.task(queue="reports")
def report(ctx: Context, title: str) -> str:
    told.append((ctx.batch.total, ctx.batch.dead, ctx.batch.results()))
    return title


@app.task(queue="reports")
def count(ctx: Context) -> None:
    told.append((ctx.batch.total, ctx.batch.dead, []))


@app.task(queue="reports")
async def areport(ctx: Context) -> None:
    told.append((ctx.batch.total, ctx.batch.dead, await ctx.batch.aresults()))


@pytest.fixture
def service() -> Iterator[MemoryService]:
    told.clear()
    with MemoryService() as made, made.serving(app):
        app.ensure_queues()
        yield made


def test_a_fan_out_of_two_hundred_with_a_final_task(
    service: MemoryService,
) -> None:
    with app.client.batch(on_succeeded=count.s()) as batch:
        for number in range(200):
            batch.add(square.s(number))

    service.run(app)

    assert told == [(200, 0, [])]
    shown = app.client.get_batch(batch.id)
    assert (shown.total, shown.created, shown.succeeded, shown.live) == (200, 200, 200, 0)
    assert shown.finished_at is not None
    assert app.client.batch_results(batch.id).truncated


def test_a_failure_is_told_and_the_rest_goes_on(service: MemoryService) -> None:
    with app.client.batch(on_ended=report.s("x")) as batch:
        for number in (1, -1, 2):
            batch.add(square.options(max_retries=0).s(number))
    service.run(app)

    assert told == [(3, 1, [1, 4])]
    assert len(app.client.get_batch(batch.id).dead_ids) == 1


def test_it_works_from_an_event_loop(service: MemoryService) -> None:
    async def fill() -> str:
        client = service.connect_async()
        async with client.batch(on_ended=areport.s()) as batch:
            for number in range(30):
                await batch.add(square.s(number))
            await batch.enqueue("work", {"task": square.name, "args": {"number": 30}})
        assert await client.get_batch(batch.id) == batch.batch
        await client.close()
        return batch.id

    asyncio.run(fill())
    service.run(app)

    assert told == [(31, 0, [number * number for number in range(31)])]


@pytest.mark.parametrize("callback", [report.s("squares"), areport.s()])
def test_results_are_all_or_an_error(service: MemoryService, callback: Any) -> None:
    with app.client.batch(on_ended=callback) as batch:
        for number in range(101):
            batch.add(square.s(number))
    with app.client.batch(on_ended=callback) as own:
        for number in range(101):
            own.add(square.options(id=f"own-{number}").s(number))

    run = service.run(app)

    assert told == [(101, 0, [number * number for number in range(101)])]
    assert run.failed == 1
    assert f"batch {own.id} has 101 members, and not all can be read" in repr(run)


def fill(numbers: range, fails_at: int | None = None) -> None:
    with app.client.batch(id="b", on_ended=report.s("x")) as batch:
        for number in numbers:
            if number == fails_at:
                batch.flush()
                raise OSError("the disk is full")
            batch.add(square.s(number))


def test_a_block_that_runs_again_with_other_tasks_is_refused(service: MemoryService) -> None:
    with pytest.raises(OSError, match="full"):
        fill(range(3), fails_at=2)
    service.tick()

    with pytest.raises(BatchExists, match="batch b already had 2 members when this block began"):
        fill(range(5, 8))

    assert app.client.get_batch("b").total is None


def test_a_block_that_runs_again_adds_no_member_twice(service: MemoryService) -> None:
    with pytest.raises(OSError, match="full"):
        fill(range(3), fails_at=2)
    service.tick()

    fill(range(3))
    service.run(app)

    assert told == [(3, 0, [0, 1, 4])]
