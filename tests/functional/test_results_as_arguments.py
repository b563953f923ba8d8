"""A step takes the results of steps before it as arguments."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace import App, InvalidRequest, TaskDead, Workflow, chain, chord, group, previous
from headrace.testing import MemoryService

app = App(queue="work")


@app.task
def number(value: int) -> int:
    return value


@app.task
def keep(values: list[Any]) -> None: ...


@app.task
def double(value: int) -> int:
    return 2 * value


@app.task
async def total(values: list[int], extra: int = 0) -> int:
    return sum(values) + extra


@app.task
def quotient(dividend: int, divisor: int) -> float:
    return dividend / divisor


noted: list[int] = []


@app.task
def note(values: list[int]) -> None:
    noted.extend(values)


@app.task
def word() -> str:
    return "five"


@pytest.fixture
def service() -> Iterator[MemoryService]:
    with MemoryService() as made, made.serving(app):
        app.ensure_queues()
        yield made


def test_after_a_group_it_is_the_list_of_results_in_its_order(service: MemoryService) -> None:
    numbers = group(*(number.s(value) for value in range(5)))
    assert chord(numbers, total.s(previous.result)).start(app.client).result(timeout=600) == 10
    later = chain(
        number.s(7),
        group(double.s(previous.result), number.s(1), double.s(previous.result)),
        total.s(previous.result, extra=100),
    )
    assert later.start(app.client).result(timeout=600) == 129


def test_steps_of_a_graph_name_the_steps_whose_results_they_take(service: MemoryService) -> None:
    graph = Workflow[float]()
    two, six = graph.add("two", number.s(2)), graph.add("six", number.s(6))
    graph.add("three", quotient.s(six.result, two.result))

    assert graph.steps["three"].after == ("six", "two")
    assert graph.start(app.client).result(timeout=600) == 3.0


def test_the_callback_of_a_batch_takes_all_results(service: MemoryService) -> None:
    noted.clear()
    with app.client.batch(on_succeeded=note.s(previous.result)) as batch:
        for value in range(30):
            batch.add(number.s(value))
        batch.add(double.options(max_retries=5).s(4))
    service.run(app)

    assert noted == [*range(30), 8]


def test_what_no_step_is_before_is_rejected(service: MemoryService) -> None:
    with app.client.batch() as batch:
        batch.add(double.s(previous.result))
    assert service.run(app).failed == 1
    (dead,) = app.client.list_tasks("work", state="dead")
    assert "no step is before it" in dead.errors[-1].message


def test_a_result_that_does_not_fit_is_refused_by_the_step(service: MemoryService) -> None:
    run = chain(word.s(), double.s(previous.result)).start(app.client)
    with pytest.raises(TaskDead, match=r"args\.value expected `int`, got `str`"):
        run.result(timeout=600)


def test_only_a_later_step_takes_the_result_of_a_step() -> None:
    with pytest.raises(InvalidRequest, match=r"args.value is the result of a step"):
        double.enqueue(previous.result)
    with pytest.raises(InvalidRequest, match=r"must have one before that with previous\.result"):
        chain(double.s(previous.result))
    with pytest.raises(InvalidRequest, match=r"args\.values cannot be written .* StepResult"):
        keep.s([previous.result])
    other = Workflow().add("other", number.s(1))
    with pytest.raises(InvalidRequest, match="names other, which is no step before this"):
        Workflow().add("b", double.s(other.result))
