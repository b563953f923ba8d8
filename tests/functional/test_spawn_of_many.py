"""More children than one report takes: all of them once, or none."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from headrace import App, Context, RetryStrategy
from headrace.client.app.loads import entry_of, in_loads
from headrace.client.codec import PLAIN
from headrace.client.sending import SpawnedTask, later_child
from headrace.domain import limits
from headrace.domain.errors import InvalidRequest, PayloadTooLarge
from headrace.domain.reserved import SPAWN
from headrace.testing import MemoryService

app = App(queue="work")
seen: Counter[int] = Counter()


@app.task
def child(number: int) -> None:
    seen[number] += 1


@app.task(retries=1)
def parent(ctx: Context, number: int, fail: bool = False, batch: str | None = None) -> None:  # noqa: FBT001, FBT002 (an argument of a task)
    for one in range(number):
        ctx.spawn(child, {"number": one}, batches=[batch] if batch else None)
    if fail and ctx.attempt == 1:
        raise RuntimeError("not this time")


@app.task(queue="told")
def told(ctx: Context) -> None:
    assert ctx.batch is not None
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


def test_a_batch_waits_for_all_of_them(service: MemoryService) -> None:
    with app.client.batch(on_succeeded=told.s()) as batch:
        batch.add(parent.s(100, batch=batch.id))

    service.run(app)

    assert seen[-1] == 1
    batch_ = app.client.get_batch(batch.id)
    assert (batch_.live, batch_.dead, batch_.total) == (0, 0, 1)
    assert batch_.succeeded == batch_.created > 101  # the tasks that made them count too


def test_a_report_never_makes_more_than_it_may() -> None:
    for sizes in ([90_000] * 23 + [10] * 500, [97_000] * 21 + [10] * 30, [1] * 20_000):
        children = [SpawnedTask(queue="q", payload="x" * size) for size in sizes]
        made = in_loads("work", children, PLAIN)

        assert len(made) <= limits.SPAWN
        assert all(len(PLAIN.encode(one.payload)) <= limits.PAYLOAD_BYTES for one in made)
        loads = [one for one in made if isinstance(one.payload, dict)]
        carried = [entry for load in loads for entry in load.payload["args"]["tasks"]]
        assert len(carried) + len(made) - len(loads) == len(children)
        assert {load.payload["task"] for load in loads} == {SPAWN}


def test_a_load_brings_every_option_of_a_task() -> None:
    task = SpawnedTask(
        queue="q",
        payload={"a": [1]},
        id="x",
        scheduled_at=datetime(2026, 1, 1, tzinfo=UTC),
        expires_at=datetime(2026, 1, 2, tzinfo=UTC),
        dedupe_key="k",
        retry_strategy=RetryStrategy(max_retries=3),
        tags={"a": "b"},
        batches=("b",),
    )

    again = later_child(PLAIN.decode(PLAIN.encode(entry_of(task))))

    assert entry_of(again) == entry_of(task)
    assert again.retry_strategy == task.retry_strategy


def test_what_cannot_be_carried_is_refused() -> None:
    tagged = [SpawnedTask(queue="q", tags={"t": "x" * 200}) for _ in range(10_000)]
    with pytest.raises(PayloadTooLarge, match="spawn"):
        in_loads("work", tagged, PLAIN)
    batched = [SpawnedTask(queue="q", batches=(f"b{n}",)) for n in range(200)]
    with pytest.raises(InvalidRequest, match="batches together"):
        in_loads("work", batched, PLAIN)
