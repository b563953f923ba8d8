"""Chains, groups, chords and graphs of tasks: in what order, with what results, and cancelled."""

from collections.abc import Iterator

import pytest

from headrace import App, Context, Workflow, WorkflowRun, chain, group
from headrace.domain.errors import InvalidRequest
from headrace.domain.task import State
from headrace.testing import MemoryService

app = App(queue="work")
ran: list[str] = []
least = {"value": 0}


@app.task(max_retries=0)
def number(value: int) -> int:
    ran.append(f"number {value}")
    if value < least["value"]:
        raise ValueError("too small")
    return value


@app.task
def total(ctx: Context, name: str = "total") -> int:
    found = sum(ctx.batch.results())
    ran.append(f"{name} {found}")
    return found


@pytest.fixture
def service() -> Iterator[MemoryService]:
    ran.clear()
    least["value"] = 0
    with MemoryService() as made, made.serving(app):
        app.ensure_queues()
        yield made


def test_a_graph_joins_what_it_names(service: MemoryService) -> None:
    wf = Workflow()
    wf.add("a", number.s(1))
    wf.add("b", number.s(2))
    wf.add("c", total.s("c"), after=["a", "b"])
    wf.add("d", total.s("d"), after=["b"])
    wf.add("e", total.s("e"), after=["c", "d"])

    run = wf.start(app.client)
    service.run(app)

    assert sorted(ran[:2]) == ["number 1", "number 2"]
    assert sorted(ran[2:4]) == ["c 3", "d 2"]
    assert ran[4:] == ["e 5"]
    assert {task.state for task in run.show().tasks} == {State.SUCCEEDED}


def test_after_a_failure_it_stops_and_a_restart_lets_it_go_on(service: MemoryService) -> None:
    run = chain(group(number.s(1), number.s(-1)), total.s("sum")).start(app.client)
    service.run(app)
    assert not [one for one in ran if one.startswith("sum")]
    assert (run.show().whole.dead, run.show().waiting) == (1, ["2"])

    least["value"] = -1
    app.client.restart_tasks("work", ids=run.show().whole.dead_ids)
    service.run(app)

    assert ran[-1] == "sum 0"
    assert run.show().whole.dead == 0


def test_started_again_under_its_id_it_runs_once(service: MemoryService) -> None:
    for _ in range(2):
        chain(number.s(3), total.s("b")).start(app.client, id="nightly")
    service.run(app)
    chain(number.s(3), total.s("b")).start(app.client, id="nightly")
    service.run(app)

    assert ran == ["number 3", "b 3"]


def test_it_is_cancelled_as_a_whole(service: MemoryService) -> None:
    run = chain(group(number.s(1), number.s(2)), total.s("b"), total.s("c")).start(app.client)

    cancelled = WorkflowRun(run.id, app.client).cancel()
    service.run(app)

    service.tick()
    assert (cancelled, ran) == (2, [])
    assert WorkflowRun(run.id, app.client).cancel() == 0  # they are, and once
    state = run.show()
    assert (state.waiting, state.whole.dead, state.whole.total) == ([], 2, 2)
    assert state.whole.finished_at is not None


def test_ten_steps_may_wait_for_one_and_one_for_ten(service: MemoryService) -> None:
    wf = Workflow()
    wf.add("a", number.s(1))
    names: list[str] = [wf.add(f"c{n}", total.s(f"c{n}"), after=["a"]) for n in range(10)]
    wf.add("d", total.s("d"), after=names)
    run = wf.start(app.client)
    assert sorted(run.show().waiting) == sorted([*names, "d"])
    assert drawn(run) == {"a": set(), **{name: {"a"} for name in names}, "d": set(names)}

    service.run(app)
    assert drawn(run) == {"a": set(), **{name: {"a"} for name in names}, "d": set(names)}

    assert ran[0] == "number 1"
    assert sorted(ran[1:-1]) == [f"{name} 1" for name in names]
    assert ran[-1] == "d 10"
    state = run.show()
    assert (state.whole.total, state.whole.succeeded, state.waiting) == (12, 12, [])


def drawn(run: WorkflowRun) -> dict[str, set[str]]:
    """What each step waits for, as the tree is drawn."""
    steps = run.client.batch_steps(run.id).steps
    names = {step.task_id: step.name for step in steps}
    return {step.name: {names[one] for one in step.after} for step in steps}


@pytest.mark.parametrize("queue", ["work", "other"])
def test_a_workflow_does_not_start_where_another_task_has_the_id_of_a_step(
    service: MemoryService, queue: str
) -> None:
    app.client.create_queue("other")
    app.client.enqueue(queue, {"any": 1}, id="order-0")

    with pytest.raises(InvalidRequest, match=f"order-0 of queue {queue} is no step"):
        chain(number.s(3), total.s()).start(app.client, id="order")
