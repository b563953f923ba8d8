"""The most children of one attempt: all of them once, or none."""

from collections import Counter
from collections.abc import Iterator

import pytest

from headrace import App, Context
from headrace.domain.errors import InvalidRequest, PayloadTooLarge
from headrace.testing import MemoryService

app = App(queue="work")
seen: Counter[int] = Counter()


@app.task
def child(number: int, text: str = "") -> None:
    seen[number] += 1


@app.task(max_retries=1)
def parent(ctx: Context, number: int) -> None:
    for one in range(number):
        ctx.spawn(child, {"number": one})
    if ctx.attempt == 1:
        raise RuntimeError("not this time")


@app.task(max_retries=0)
def too_many(ctx: Context) -> None:
    for one in range(250):
        ctx.spawn(child, {"number": one})
    with pytest.raises(InvalidRequest, match=r"^spawn takes at most 250 tasks in one attempt"):
        ctx.spawn(child, {"number": 250})


@app.task(max_retries=0)
def too_large(ctx: Context) -> None:
    for one in range(8):
        ctx.spawn(child, {"number": one, "text": "x" * 262_000})
    with pytest.raises(PayloadTooLarge, match=r"^spawn payloads take .* at most 2097152 are taken"):
        ctx.spawn(child, {"number": 8, "text": "x" * 1_000})


@pytest.fixture
def service() -> Iterator[MemoryService]:
    seen.clear()
    with MemoryService() as made, made.serving(app):
        app.ensure_queues()
        yield made


@pytest.mark.parametrize("number", [24, 25, 250])
def test_all_of_them_come_once_and_of_a_failed_attempt_none(
    service: MemoryService, number: int
) -> None:
    parent.enqueue(number)

    service.run(app)
    assert not seen
    service.run(app, until_settled=True, limit=1_000)

    assert seen == dict.fromkeys(range(number), 1)


def test_more_are_refused_before_the_report(service: MemoryService) -> None:
    for task, number in ((too_many, 250), (too_large, 8)):
        task.enqueue()
        service.run(app, until_settled=True, limit=1_000)

        assert seen == dict.fromkeys(range(number), 1)
        seen.clear()
