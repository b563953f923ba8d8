"""Who waits for a result in a test has the app work meanwhile, in simulated time."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from headrace import App, Context
from headrace.testing import MemoryService

app = App(queue="mail")
app.queue("nobody")


@app.task(max_retries=3)
def double(ctx: Context, number: int, fails: int = 0) -> int:
    if ctx.attempt <= fails:
        raise ValueError(f"attempt {ctx.attempt}")
    ctx.progress({"half": number})
    return 2 * number


@pytest.fixture
def service() -> Iterator[MemoryService]:
    with MemoryService() as service, service.serving(app):
        yield service


def test_time_passes_as_far_as_it_takes_and_no_further(service: MemoryService) -> None:
    began = service.clock.now

    assert double.options(delay=3600).enqueue(4, fails=2).result() == 8

    passed = service.clock.now - began
    assert timedelta(hours=1) < passed < timedelta(hours=1, minutes=3)


def test_when_time_is_over_that_is_an_error_and_the_time_has_passed(
    service: MemoryService,
) -> None:
    task, began = double.options(delay=3600).enqueue(4), service.clock.now

    with pytest.raises(TimeoutError, match="within 60 s: it is ENQUEUED"):
        task.result(timeout=60)

    assert service.clock.now - began == pytest.approx(timedelta(seconds=60), abs=timedelta(0, 1))
    assert task.result() == 8


def test_where_nothing_is_left_that_could_end_it_the_story_ends(service: MemoryService) -> None:
    task = double.options(queue="nobody").enqueue(4)

    with pytest.raises(RuntimeError, match="nothing of the apps that are served is left to do"):
        task.result()
    with pytest.raises(TimeoutError):
        task.result(timeout=60)


def test_progress_is_gone_through_until_the_end(service: MemoryService) -> None:
    assert list(double.enqueue(4).updates()) == [{"half": 4}]

    async def story() -> list[object]:
        return [shown async for shown in (await double.aenqueue(5)).updates()]

    assert asyncio.run(story()) == [{"half": 5}]
