"""Batches as programs use them: filled in a block, told to a function, tested in memory."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from headrace import App, Context, NotEnqueued, Report
from headrace.domain.errors import BatchExists, InvalidRequest
from headrace.testing import MemoryService, inline

app = App(queue="work")
told: list[tuple[int, int, list[int]]] = []


@app.task
def square(number: int) -> int:
    if number < 0:
        raise ValueError("no square of that here")
    return number * number


@app.task(queue="reports")
def report(ctx: Context, title: str) -> str:
    assert ctx.batch is not None
    told.append((ctx.batch.total, ctx.batch.dead, ctx.batch.results()))
    return title


@app.task(queue="reports")
def count(ctx: Context) -> None:
    assert ctx.batch is not None
    told.append((ctx.batch.total, ctx.batch.dead, []))


@app.task(queue="reports")
async def areport(ctx: Context) -> None:
    assert ctx.batch is not None
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


@pytest.mark.parametrize("dead", [False, True])
def test_a_batch_in_a_batch_is_a_callback_that_joins_the_outer_one(
    service: MemoryService,
    dead: bool,  # noqa: FBT001
) -> None:
    """Three deep: each is told of when the one inside has been, and only then."""
    client = app.client
    outer = client.create_batch(on_ended=report.s("outer"))
    middle = client.create_batch(on_ended=report.options(batches=[outer.id]).s("middle"))
    with client.batch(on_ended=report.options(batches=[middle.id]).s("inner")) as inner:
        for number in (3, -4 if dead else 4):
            inner.add(square.options(retries=0).s(number))
    square.options(batches=[outer.id]).enqueue(2)
    client.close_batch(middle.id, 1)
    client.close_batch(outer.id, 2)

    service.run(app)

    assert told == [(2, int(dead), [9] if dead else [9, 16]), (1, 0, ["inner"]), told[-1]]
    total, died, results = told[-1]
    assert (total, died, sorted(map(str, results))) == (2, 0, ["4", "middle"])
    for id in (outer.id, middle.id, inner.id):
        assert client.get_batch(id).finished_at is not None


def test_a_block_that_raises_leaves_the_batch_open(service: MemoryService) -> None:
    with suppress(RuntimeError), app.client.batch(on_ended=report.s("x")) as batch:
        batch.add(square.s(1))
        batch.flush()
        raise RuntimeError

    service.run(app)

    assert told == []
    assert app.client.get_batch(batch.id).total is None
    assert [one.id for one in app.client.list_batches()] == [batch.id]


def test_what_was_sent_before_counts_once(service: MemoryService) -> None:
    with app.client.batch(on_ended=report.s("x")) as batch:
        for _ in range(2):
            batch.enqueue("work", {"task": square.name, "args": {"number": 3}}, id="three")
            batch.flush()
    service.run(app)

    assert batch.total == 1
    assert told == [(1, 0, [9])]


def test_a_call_whose_arguments_do_not_fit_is_refused_when_it_is_made() -> None:
    with pytest.raises(InvalidRequest, match="number"):
        square.s("three")  # type: ignore[arg-type]  # which a checker sees too


def test_what_is_no_call_is_refused_by_name(service: MemoryService) -> None:
    wrong: Any = square  # without .s
    with (
        pytest.raises(InvalidRequest, match=r"task must be a call, as send\.s\(\) is one"),
        app.client.batch() as batch,
    ):
        batch.add(wrong)
    with pytest.raises(InvalidRequest, match=r"on_ended must be a call, .* not TaskFunction"):
        app.client.create_batch(on_ended=wrong)


def test_a_missing_batch_is_an_error_of_the_entry(service: MemoryService) -> None:
    with pytest.raises(NotEnqueued, match=r"batches\[0\]: there is no batch none"):
        square.options(batches=["none"]).enqueue(1)


def test_the_queue_of_a_callback_is_made_as_that_of_an_enqueue_is(service: MemoryService) -> None:
    app.client.create_batch(on_ended=report.options(queue="nowhere").s("x"))

    assert "nowhere" in {queue.name for queue in app.client.list_queues()}


def test_a_failure_is_told_and_the_rest_goes_on(service: MemoryService) -> None:
    with app.client.batch(on_ended=report.s("x")) as batch:
        for number in (1, -1, 2):
            batch.add(square.options(retries=0).s(number))
    service.run(app)

    assert told == [(3, 1, [1, 4])]
    assert len(app.client.get_batch(batch.id).dead_ids) == 1


def test_a_handler_may_add_to_its_own_batch(service: MemoryService) -> None:
    grow = App(client=app.client, queue="work")

    @grow.task(name="grow")
    def step(ctx: Context, left: int) -> int:
        if left:
            ctx.spawn(step, {"left": left - 1}, batches=ctx.task.batches)
        return left

    with grow.client.batch(on_ended=report.s("x")) as batch:
        batch.add(step.s(3))
    service.run(grow)
    service.run(app)

    assert [(total, dead) for total, dead, _ in told] == [(4, 0)]


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


def test_inline_what_is_called_back_runs_too() -> None:
    told.clear()
    with inline(app):
        app.ensure_queues()
        with app.client.batch(on_ended=report.s("x")) as batch:
            batch.add(square.s(5))

    assert told == [(1, 0, [25])]


@pytest.mark.parametrize("callback", [report.s("squares"), areport.s()])
def test_results_are_all_or_an_error(service: MemoryService, callback: Any) -> None:
    with app.client.batch(on_ended=callback) as batch:
        for number in range(101):
            batch.add(square.s(number))

    run = service.run(app)

    assert told == []
    assert run.failed == 1
    assert f"batch {batch.id} has more than 100 members, and no more can be read" in repr(run)


def test_results_that_are_no_longer_there_are_an_error(service: MemoryService) -> None:
    with app.client.batch(on_ended=report.s("squares")) as batch:
        for number in range(3):
            batch.add(square.s(number))
    for task in service.client.dequeue("work", batch_size=3).tasks:
        service.client.report("work", [Report.on(task, "SUCCEEDED", result=1)])
    service.tick()
    service.client.delete_task(app.client.batch_results(batch.id).results[0].id)

    run = service.run(app)

    assert told == []
    assert f"1 of the 3 members of batch {batch.id} cannot be read" in repr(run)


def fill(*, ids: bool, first: int = 0, until: int = 3, fails_at: int | None = None) -> None:
    with app.client.batch(id="b", on_ended=report.s("x")) as batch:
        for number in range(first, until):
            if number == fails_at:
                batch.flush()
                raise OSError("the disk is full")
            name = f"square-{number}" if ids else None
            batch.add(square.options(id=name).s(number))


def test_a_block_that_runs_again_with_new_tasks_is_refused_before_it_adds_any(
    service: MemoryService,
) -> None:
    with pytest.raises(OSError, match="full"):
        fill(ids=False, fails_at=2)
    service.tick()

    with pytest.raises(BatchExists, match="batch b already had 2 members when this block began"):
        fill(ids=False)

    batch = app.client.get_batch("b")
    assert (batch.total, batch.direct) == (None, 2)
    app.client.close_batch("b", 2)
    service.run(app)
    assert told == [(2, 0, [0, 1])]


def test_a_block_that_runs_again_with_other_ids_is_refused_at_its_end(
    service: MemoryService,
) -> None:
    with pytest.raises(OSError, match="full"):
        fill(ids=True, fails_at=2)
    service.tick()

    with pytest.raises(BatchExists, match=r"client\.close_batch"):
        fill(ids=True, first=1, until=4)

    assert app.client.get_batch("b").total is None


def test_a_block_that_runs_again_with_the_same_ids_goes_on(service: MemoryService) -> None:
    with pytest.raises(OSError, match="full"):
        fill(ids=True, fails_at=2)
    service.tick()

    fill(ids=True)
    service.run(app)

    assert told == [(3, 0, [0, 1, 4])]


def test_an_async_block_that_runs_again_is_refused_too(service: MemoryService) -> None:
    async def again() -> None:
        client = service.connect_async()
        async with client.batch(id="b", on_ended=report.s("x")) as batch:
            await batch.add(square.s(1))

    with pytest.raises(OSError, match="full"):
        fill(ids=False, fails_at=2)
    service.tick()

    with pytest.raises(BatchExists, match="the block probably ran before"):
        asyncio.run(again())
