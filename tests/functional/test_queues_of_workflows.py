"""Workflows and batches where queues of their functions do not exist yet."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace import App, Context, chain, chord, group
from headrace.domain.errors import InvalidRequest, NotFound
from headrace.testing import MemoryService

app = App(queue="w")
app.queue("w", shards=2)


@app.task
def number(value: int) -> int:
    return value


@app.task(queue="sums")
def total(ctx: Context) -> int:
    assert ctx.batch is not None
    return sum(ctx.batch.results())


@pytest.fixture
def service() -> Iterator[MemoryService]:
    with MemoryService() as made, made.serving(app):
        yield made


def test_a_workflow_makes_the_queues_of_its_functions_as_the_app_declares_them(
    service: MemoryService,
) -> None:
    run = chord(group(number.s(1), number.s(2)), total.s()).start(app.client)
    service.run(app)
    assert run.result() == 3
    assert app.client.get_queue("w").shards == 2
    assert run.show().whole.total == 3


def test_a_workflow_makes_them_from_an_event_loop_too(service: MemoryService) -> None:
    async def start() -> None:
        await chain(number.s(1), total.s()).astart(service.async_client)

    asyncio.run(start())
    assert {queue.name for queue in app.client.list_queues()} == {"w", "sums"}


def test_a_batch_makes_them_for_its_callback_and_its_members(service: MemoryService) -> None:
    with app.client.batch(on_ended=total.s()) as batch:
        for value in range(30):
            batch.add(number.s(value))
    service.run(app)
    assert batch.batch is not None
    assert batch.batch.total == 30
    assert app.client.get_queue("w").shards == 2
    assert [task.state for task in app.client.list_tasks("sums")] == ["SUCCEEDED"]


def test_a_batch_makes_them_from_an_event_loop_too(service: MemoryService) -> None:
    async def fill() -> None:
        async with service.async_client.batch(on_ended=total.s()) as batch:
            await batch.add(number.s(1))

    asyncio.run(fill())
    assert {queue.name for queue in app.client.list_queues()} == {"w", "sums"}


def test_a_batch_that_is_created_makes_the_queue_of_its_callback(service: MemoryService) -> None:
    async def create() -> None:
        await service.async_client.create_batch(total=1, on_ended=total.s())

    app.client.create_batch(total=1, on_succeeded=number.s(1))
    asyncio.run(create())
    assert {queue.name for queue in app.client.list_queues()} == {"w", "sums"}


def test_an_app_that_makes_none_says_what_to_run() -> None:
    careful = App(queue="w", create_queues=False)
    call = careful.task(number.function).s(1)
    with MemoryService() as service, service.serving(careful):
        starts: list[Callable[[], Any]] = [
            lambda: chain(call).start(careful.client),
            lambda: chain(call, call).start(careful.client),
        ]
        for start in starts:
            with pytest.raises(NotFound, match="run `headrace queue create w`"):
                start()


def test_what_else_is_wrong_is_said_as_before(service: MemoryService) -> None:
    with pytest.raises(InvalidRequest, match="expires_in_seconds"):
        app.client.batch(on_ended=number.s(1), expires_in_seconds=-1).__enter__()
    assert list(app.client.list_queues()) == []


@pytest.mark.usefixtures("service")
def test_a_workflow_that_is_given_an_app_says_which_client_it_takes() -> None:
    wrong: Any = app
    with pytest.raises(TypeError, match=r"starts with a client, as app\.client is one.*App is"):
        chain(number.s(1)).start(wrong)
    with pytest.raises(TypeError, match="starts with a client"):
        asyncio.run(group(number.s(1)).astart(wrong))
