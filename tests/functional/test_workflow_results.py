"""The result of a workflow, and of its steps: typed, waited for, and told when it never comes.

Each ``assert_type`` is checked by mypy (``make check``) and says nothing when it runs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, assert_type

import pytest

from headrace import (
    App,
    AsyncClient,
    AsyncWorkflowRun,
    Client,
    Context,
    Worker,
    Workflow,
    WorkflowRun,
    chain,
    chord,
    group,
)
from headrace.client.sending import FunctionCall, SpawnedTask
from headrace.domain.errors import InvalidRequest, NotFound, TaskDead
from headrace.testing import MemoryService

app = App(queue="work")
R = TypeVar("R")


@dataclass(frozen=True)
class Sum:
    of: int
    value: int


@app.task(retries=0)
def number(value: int) -> int:
    if value < 0:
        raise ValueError("too small")
    return value


@app.task
async def total(ctx: Context) -> Sum:
    assert ctx.batch is not None
    found = [one if isinstance(one, int) else one["value"] for one in await ctx.batch.aresults()]
    return Sum(len(found), sum(found))


@pytest.fixture
def service() -> Iterator[MemoryService]:
    with MemoryService() as made, made.serving(app):
        app.ensure_queues()
        yield made


def test_of_a_chain_it_is_what_the_last_function_returns(service: MemoryService) -> None:
    assert_type(number.s(3), FunctionCall[int])
    assert_type(total.s(), FunctionCall[Sum])

    result = chain(number.s(3), total.s()).start(app.client).result(timeout=600)

    assert_type(result, Sum)
    assert result == Sum(1, 3)
    alone = chain(number.options(delay=1).s(2), number.s(1)).start(app.client).result()
    assert_type(alone, int)
    assert alone == 1


def test_of_a_chain_that_ends_with_a_group_it_is_a_list(service: MemoryService) -> None:
    result = chain(number.s(3), group(total.s(), total.s())).start(app.client).result()

    assert_type(result, list[Sum])
    assert result == [Sum(1, 3), Sum(1, 3)]
    one = group(number.s(7)).start(app.client).result()
    assert_type(one, list[int])
    assert one == [7]


def test_of_a_chord_it_is_the_callbacks(service: MemoryService) -> None:
    run = chord(group(*(number.s(n) for n in range(30))), total.s()).start(app.client)

    assert_type(run, WorkflowRun[Sum])
    assert run.result() == Sum(30, 435)


def test_of_a_graph_each_step_has_its_own(service: MemoryService) -> None:
    wf = Workflow()
    a = wf.add("a", number.s(1))
    both = [wf.add(name, total.s(), after=[a]) for name in "bcdef"]  # with relays between
    plain = wf.add("plain", SpawnedTask(queue="work", payload=number.s(5).payload), after=both)

    run = wf.start(app.client)

    assert_type(run.result(a), int)
    assert_type(run.result(both[0]), Sum)
    assert_type(run.result(plain), Any)
    assert (run.result(a), run.result("b"), run.result()) == (1, Sum(1, 1), 5)


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


def test_after_a_dead_one_it_goes_on_where_that_is_wanted(service: MemoryService) -> None:
    run = chain(group(number.s(1), number.s(-1)), total.s(), on_failure="go_on").start(app.client)

    assert run.result() == Sum(1, 1)


def test_where_all_is_cancelled_it_is_told(service: MemoryService) -> None:
    run = chain(number.options(delay=60).s(1), total.s(), total.s()).start(app.client)
    run.cancel()

    with pytest.raises(TaskDead, match=r"step 3 of workflow .* is not made: the workflow was canc"):
        run.result()


def test_time_may_be_over_before(service: MemoryService) -> None:
    run = chain(number.options(delay=3600).s(1), total.s()).start(app.client)

    with pytest.raises(TimeoutError, match=r"step 2 of workflow .* has not ended within 60 s"):
        run.result(timeout=60)
    with pytest.raises(InvalidRequest, match="timeout"):
        run.result(timeout=-1)
    assert run.result(timeout=timedelta.max) == Sum(1, 1)


def test_who_has_not_started_it_knows_no_results(service: MemoryService) -> None:
    run = chain(number.s(1), total.s()).start(app.client)

    with pytest.raises(InvalidRequest, match="where the workflow was started"):
        WorkflowRun(run.id, app.client).result()
    with pytest.raises(NotFound, match="has no step 9"):
        run.result("9")


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
        run = await chain(number.s(3), total.s()).astart(client)
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


def test_in_an_event_loop_each_step_of_a_graph_has_its_own(service: MemoryService) -> None:
    wf = Workflow()
    first = wf.add("first", number.s(5))
    wf.add("last", total.s(), after=[first])

    async def do(client: AsyncClient) -> None:
        run = await wf.astart(client)
        one = await run.result(first)
        assert_type(one, int)
        assert (one, await run.result("last")) == (5, Sum(1, 5))
        with pytest.raises(NotFound, match="has no step 9"):
            await run.result("9")

    in_loop(service, do)


def test_in_an_event_loop_it_is_told_that_it_never_comes(service: MemoryService) -> None:
    async def do(client: AsyncClient) -> None:
        dead = await chain(number.s(-1), total.s()).astart(client)
        with pytest.raises(TaskDead, match="ValueError: too small"):
            await dead.result()
        late = await chain(number.options(delay=3600).s(1), total.s()).astart(client)
        with pytest.raises(TimeoutError, match=r"step 2 of workflow .* has not ended within 60 s"):
            await late.result(timeout=60)
        with pytest.raises(InvalidRequest, match="timeout"):
            await late.result(timeout=-1)
        assert await late.cancel() == 1
        with pytest.raises(TaskDead, match="the workflow was cancelled"):
            await late.result()
        with pytest.raises(InvalidRequest, match="where the workflow was started"):
            await AsyncWorkflowRun(late.id, client).result()

    in_loop(service, do)


def test_over_a_file_it_comes_by_itself(tmp_path: Path) -> None:
    with Client(f"file:{tmp_path}/h.db") as client:
        filed = App(client=client)

        @filed.task(queue="numbers")
        def one() -> int:
            return 1

        @filed.task(queue="numbers")
        def more(ctx: Context) -> Sum:
            assert ctx.batch is not None
            return Sum(1, sum(ctx.batch.results()) + 1)

        filed.ensure_queues()
        run = chain(one.s(), more.s()).start(client)
        with ThreadPoolExecutor() as pool:
            burst = pool.submit(Worker(filed).run, burst=True)
            assert run.result(timeout=20) == Sum(1, 2)
            burst.result()

            async def again() -> Sum:
                async with AsyncClient(f"file:{tmp_path}/h.db") as waiting:
                    started = await chain(one.s(), more.s()).astart(waiting)
                    burst = pool.submit(Worker(filed).run, burst=True)
                    found = await started.result(timeout=20)
                    await asyncio.wrap_future(burst)
                    return found

            assert asyncio.run(again()) == Sum(1, 2)
