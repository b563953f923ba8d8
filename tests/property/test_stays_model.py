"""Slots of a group, all orders of a small case: the model that the code was built after.

A slot names a task and the due time for which it may be delivered: its stay.  Two tasks, one slot,
and processes that may die between any two steps, hear no answer and see an index that lags.
Nothing here is the product's: test_group_limits.py drives that through the same faults.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import pytest

_LAST_DUE = 1


class Stay(NamedTuple):
    """A task, at a due time."""

    task: int
    due: int


class Task(NamedTuple):
    """Waiting, in flight, or gone; for good or for an operator to bring back."""

    state: str
    due: int = 0


class Process(NamedTuple):
    """What step comes next, for which stay, instead of which, and how many calls it has left."""

    step: str = "idle"
    stay: Stay | None = None
    expects: Stay | None = None
    calls: int = 0


class Line(NamedTuple):
    """A group with one slot, its tasks, and those who deliver them."""

    tasks: tuple[Task, ...]
    slot: Stay | None
    processes: tuple[Process, ...]

    def task(self, number: int, task: Task) -> "Line":
        return self._replace(
            tasks=tuple(task if at == number else one for at, one in enumerate(self.tasks))
        )

    def process(self, number: int, then: Process) -> "Line":
        return self._replace(
            processes=tuple(then if at == number else one for at, one in enumerate(self.processes))
        )


EAGER = "what is not in flight is over"
BLIND = "a slot is written whatever it names by now"
ANY_TIME = "a delivery does not ask for the due time of its stay"
STALE = "who holds a slot is read as it was a moment ago"
UNDO = "what an undo brings back keeps its due time"
ABANDONED = "nobody completes what a dead process has reserved"


def over(stay: Stay, task: Task, fault: str) -> bool:
    if task.state == "gone" or task.due != stay.due:
        return True
    return task.state == "waiting" and fault == EAGER


def events(line: Line, fault: str) -> Iterator[Line]:
    """What workers and operators do to tasks."""
    for number, task in enumerate(line.tasks):
        if task.state != "gone":
            yield line.task(number, Task("gone", task.due))
        if task.due < _LAST_DUE:
            yield line.task(number, Task("waiting", task.due + 1))
        if task.state == "flying" or (task.state == "gone" and fault == UNDO):
            yield line.task(number, Task("waiting", task.due))


def steps(line: Line, number: int, fault: str) -> Iterator[Line]:
    """What one process may do next."""
    process = line.processes[number]
    step, stay, expects, calls = process
    done = line.process(number, Process(calls=calls))
    if stay is None:
        if calls:
            yield from _begin(line, number, fault)
        return
    if step == "take":
        yield line.process(number, Process())  # it dies
        if line.slot == expects or fault == BLIND:
            taken = line._replace(slot=stay)
            yield taken.process(number, Process("deliver", stay, None, calls))
        else:
            yield done
    elif step == "deliver":
        yield line.process(number, Process())
        task = line.tasks[stay.task]
        if task.state == "waiting" and (task.due == stay.due or fault == ANY_TIME):
            yield done.task(stay.task, Task("flying", task.due))
        else:
            yield done


def _begin(line: Line, number: int, fault: str) -> Iterator[Line]:
    """It meets a task, at a due time that it has or had."""
    for at, task in enumerate(line.tasks):
        for due in range(task.due + 1):
            yield from _met(line, number, Stay(at, due), fault)


def _met(line: Line, number: int, stay: Stay, fault: str) -> Iterator[Line]:
    """It looks at the line, and at whose the slot is."""
    calls, there = line.processes[number].calls - 1, line.slot
    if there == stay:
        yield line.process(number, Process("deliver", stay, None, calls))
    elif there is None:
        yield line.process(number, Process("take", stay, None, calls))
    else:
        holder = line.tasks[there.task]
        seen = [holder]
        if fault == STALE and holder.due:
            seen.append(Task("waiting", holder.due - 1))
        for one in seen:
            if over(there, one, fault):
                yield line.process(number, Process("take", stay, there, calls))
            elif one.state == "waiting" and fault != ABANDONED:
                yield line.process(number, Process("deliver", there, None, calls))


def stuck(line: Line, fault: str) -> bool:
    """Tell whether a process that comes now delivers nothing, because of the task that it meets."""
    alone = line._replace(processes=(Process(calls=1),))
    return any(
        not any(_delivers(then, fault) for then in _met(alone, 0, Stay(at, task.due), fault))
        for at, task in enumerate(line.tasks)
        if task.state == "waiting"
    )


def _delivers(line: Line, fault: str) -> bool:
    if any(task.state == "flying" for task in line.tasks):
        return True
    after = steps(line, 0, fault) if line.processes[0].stay else ()
    return any(_delivers(then, fault) for then in after)


def explore(calls: tuple[int, ...], fault: str = "") -> tuple[int, Line | None]:
    """Return how many states there are, and one in which two are in flight or all are stuck."""
    begin = Line(
        (Task("waiting"), Task("waiting")), None, tuple(Process(calls=count) for count in calls)
    )
    seen, todo = {begin}, deque([begin])
    while todo:
        line = todo.popleft()
        flying = sum(task.state == "flying" for task in line.tasks)
        if flying > 1 or (not flying and stuck(line, fault)):
            return len(seen), line
        after = [*events(line, fault)]
        for number in range(len(calls)):
            after += steps(line, number, fault)
        for then in after:
            if then not in seen:
                seen.add(then)
                todo.append(then)
    return len(seen), None


def test_no_order_of_steps_puts_two_of_a_group_in_flight_or_leaves_it_stuck() -> None:
    states, wrong = explore((2, 1))

    assert wrong is None
    assert states > 5_000


@pytest.mark.slow
def test_nor_does_any_of_more_calls() -> None:
    assert explore((2, 2))[1] is None
    assert explore((1, 1, 1))[1] is None


@pytest.mark.slow
@pytest.mark.parametrize("fault", [EAGER, BLIND, ANY_TIME, STALE, UNDO, ABANDONED])
def test_the_model_finds_each_of_these_mistakes(fault: str) -> None:
    assert explore((2, 1), fault)[1] is not None
