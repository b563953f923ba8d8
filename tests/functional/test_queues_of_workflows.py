"""Workflows and batches where queues of their functions do not exist yet."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace import App, Context, chain, chord, group
from headrace.domain.errors import NotFound
from headrace.testing import MemoryService

app = App(queue="w")
app.queue("w", shards=2)


@app.task
def number(value: int) -> int:
    return value


@app.task(queue="sums")
def total(ctx: Context) -> int:
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
