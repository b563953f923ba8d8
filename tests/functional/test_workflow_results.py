"""The result of a workflow, and of its steps: typed, waited for, and told when it never comes.

Each ``assert_type`` is checked by mypy (``make check``) and says nothing when it runs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, assert_type

import pytest

from headrace import (
    App,
    AsyncClient,
    AsyncWorkflowRun,
    Client,
    Context,
    Worker,
    Workflow,
    chain,
    chord,
    group,
)
from headrace.client.sending import FunctionCall
from headrace.domain.errors import TaskDead
from headrace.testing import MemoryService

app = App(queue="work")
R = TypeVar("R")


@dataclass(frozen=True)
class Sum:
    of: int
    value: int


@app.task(max_retries=0)
def number(value: int) -> int:
    if value < 0:
        raise ValueError("too small")
    return value


@app.task
async def total(ctx: Context) -> Sum:
    found = [one if isinstance(one, int) else one["value"] for one in await ctx.batch.aresults()]
    return Sum(len(found), sum(found))


@pytest.fixture
def service() -> Iterator[MemoryService]:
    with MemoryService() as made, made.serving(app):
        app.ensure_queues()
        yield made


def test_a_chord_gets_the_results_of_all_members_in_their_order(service: MemoryService) -> None:
    @app.task
    def values(ctx: Context) -> list[int]:
        return [one for one in ctx.batch.results() if isinstance(one, int)]

    run = chord(group(*(number.s(value) for value in range(150))), values.s()).start(app.client)
    assert run.result(timeout=600) == list(range(150))


def test_of_a_chain_it_is_what_the_last_function_returns(service: MemoryService) -> None:
    assert_type(number.s(3), FunctionCall[int])
    assert_type(total.s(), FunctionCall[Sum])

    result = chain(number.s(3), total.s()).start(app.client).result(timeout=600)

    assert_type(result, Sum)
    assert result == Sum(1, 3)
    alone = chain(number.options(delay=1).s(2), number.s(1)).start(app.client).result()
    assert_type(alone, int)
    assert alone == 1


def test_where_a_step_before_it_is_dead_it_is_told(service: MemoryService) -> None:
    wf = Workflow()
    wf.add("bad", number.s(-1))
    wf.add("good", number.s(2))
    wf.add("next", total.s(), after=["bad"])
    last = wf.add("last", total.s(), after=["next", "good"])
    side = wf.add("side", total.s(), after=["good"])
    run = wf.start(app.client)

    with pytest.raises(TaskDead, match="ValueError: too small") as caught:
        run.result(last)
    assert caught.value.task.tags["step"] == "bad"
    assert run.result(side) == Sum(1, 2)
    with pytest.raises(TaskDead):
        run.result("bad")


def in_loop(service: MemoryService, do: Callable[[AsyncClient], Awaitable[R]]) -> R:
    async def begun() -> R:
        client = service.connect_async()
        try:
            return await do(client)
        finally:
            await client.close()

    with service.serving(app):
        return asyncio.run(begun())


def test_in_an_event_loop_each_is_waited_for_likewise(service: MemoryService) -> None:
    async def do(client: AsyncClient) -> None:
        run = await chain(number.s(3), total.s()).astart(app.async_client)
        assert_type(run, AsyncWorkflowRun[Sum])
        result = await run.result(timeout=600)
        assert_type(result, Sum)
        assert result == Sum(1, 3)
        state = await run.show()
        assert (state.whole.succeeded, state.waiting) == (2, [])
        several = await (await group(number.s(7), number.s(8)).astart(client)).result()
        assert_type(several, list[int])
        assert several == [7, 8]
        called = await (
            await chord(group(number.s(1), number.s(2)), total.s()).astart(client)
        ).result()
        assert_type(called, Sum)
        assert called == Sum(2, 3)

    in_loop(service, do)


def test_over_a_file_it_comes_by_itself(tmp_path: Path) -> None:
    with Client(f"file:{tmp_path}/h.db") as client:
        filed = App(client=client)

        @filed.task(queue="numbers")
        def one() -> int:
            return 1

        @filed.task(queue="numbers")
        def more(ctx: Context) -> Sum:
            return Sum(1, sum(ctx.batch.results()) + 1)

        filed.ensure_queues()
        run = chain(one.s(), more.s()).start(client)
        with ThreadPoolExecutor() as pool:
            burst = pool.submit(Worker(filed).run, burst=True)
            assert run.result(timeout=20) == Sum(1, 2)
            burst.result()
