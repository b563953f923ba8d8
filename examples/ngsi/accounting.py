"""Whether every notification that was sent is accounted for, and every reading of a table.

What should have come out is worked out here a second time, in plain Python and without Spark: from
the notifications as they were sent, from the time at which the service took each, and by the pure
rules alone; the queue's word counts only for what did come out.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from examples.ngsi.app import ENTITIES_QUEUE, NOTIFY_QUEUE
from examples.ngsi.ngsi import CORRELATOR_TAG, Row, split
from examples.ngsi.traffic import Notification
from examples.ngsi.trouble import ON_PURPOSE, fails_once
from examples.ngsi.values import instant_of, instant_text
from headrace.domain.task import FINISHED, State
from headrace.wire.tasks import Task

RowsOfTask = Mapping[str, Sequence[Row]]
Key = tuple[str, ...]
Value = tuple[str, str, str | None]
"""What a reading says: type, value as JSON, unit."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The worker that was killed, and the tasks whose leases it held."""

    worker: str
    held: frozenset[str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the tasks, counted, and what is wrong with it: nothing, if all is well.

    ``rows_known`` are those that a later attempt found written.
    """

    retries: int
    reclaimed: int
    rows_expected: int
    rows_out: int
    rows_known: int
    problems: tuple[str, ...]


def rows_by_task(rows: Iterable[tuple[str, Row]]) -> dict[str, list[Row]]:
    """The rows of the file, gathered by the task that brought them."""
    gathered: defaultdict[str, list[Row]] = defaultdict(list)
    for task_id, row in rows:
        gathered[task_id].append(row)
    return dict(gathered)


def audit(
    sent: Sequence[Notification], tasks: Sequence[Task], rows: RowsOfTask, crash: Crash
) -> Outcome:
    """Hold what came out against what was sent."""
    pairs, problems = matched(sent, tasks)
    expected = 0
    for notification, task in pairs:
        should_be = expected_rows(notification, task)
        expected += len(should_be)
        got = list(rows.get(task.id, ()))
        problems += (
            f"{notification.correlator} (task {task.id}): {problem}"
            for problem in _problems(notification, task, should_be, got)
        )
    known = {task.id for task in tasks}
    problems += [f"task {task_id}: rows of no task" for task_id in rows if task_id not in known]
    problems += _crash_problems(tasks, crash)
    return Outcome(
        retries=retries(tasks),
        reclaimed=sum(_of_kind(task, "lease_expired") for task in tasks),
        rows_expected=expected,
        rows_out=sum(map(len, rows.values())),
        rows_known=sum(task.result["known"] for task in tasks if task.state is State.SUCCEEDED),
        problems=tuple(problems),
    )


def states(tasks: Iterable[Task]) -> dict[State, int]:
    """How many tasks are in each state; states without any are left out."""
    return dict(Counter(task.state for task in tasks))


def matched(
    sent: Sequence[Notification], tasks: Sequence[Task]
) -> tuple[list[tuple[Notification, Task]], list[str]]:
    """Each notification with its task; and the problems: those without one, and tasks of nobody."""
    tasks_of: defaultdict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        tasks_of[task.tags.get(CORRELATOR_TAG, "")].append(task)
    pairs: list[tuple[Notification, Task]] = []
    problems: list[str] = []
    for notification in sent:
        found = tasks_of.pop(notification.correlator, [])
        if len(found) == 1:
            pairs.append((notification, found[0]))
        else:
            problems.append(f"{notification.correlator}: {len(found)} tasks instead of one")
    unknown = [task.id for left in tasks_of.values() for task in left]
    return pairs, [*problems, *(f"task {task_id}: nobody sent it" for task_id in unknown)]


def expected_rows(notification: Notification, task: Task) -> list[Row]:
    """The rows that a notification should give, by the pure rules."""
    if notification.error is not None:
        return []
    return split(notification.body, notification.headers, task.created_at)


def wrong_end(notification: Notification, task: Task) -> Iterator[str]:
    """What is wrong with how a task has ended."""
    well = notification.error is None
    queue, state = (ENTITIES_QUEUE, State.SUCCEEDED) if well else (NOTIFY_QUEUE, State.DEAD)
    last = task.errors[-1].message if task.errors else "no error"
    if (task.queue, task.state) != (queue, state):
        yield f"{task.state} in {task.queue} instead of {state} in {queue} ({last})"
        return
    if not well:
        if last != notification.error:
            yield f"ended with {last!r} instead of {notification.error!r}"
        if task.dead_reason != "rejected":
            yield f"dead_reason {task.dead_reason} instead of rejected"
    first_tries = [error for error in task.errors if error.attempt == 1]
    if fails_once(task.id) and not any(
        error.message == ON_PURPOSE or error.kind == "lease_expired" for error in first_tries
    ):
        yield "its first attempt should have failed on purpose"


def retries(tasks: Iterable[Task]) -> int:
    """How many attempts were reported as failed and were followed by another."""
    return sum(_of_kind(task, "failed") - int(task.state is State.DEAD) for task in tasks)


def _problems(
    notification: Notification, task: Task, should_be: Sequence[Row], got: Sequence[Row]
) -> Iterator[str]:
    yield from wrong_end(notification, task)
    if task.state not in FINISHED:
        return
    if len(got) != len(should_be):
        yield f"{len(got)} rows in the file, not the {len(should_be)} expected"
    elif list(got) != list(should_be):
        yield "a row is not as expected"


def _crash_problems(tasks: Sequence[Task], crash: Crash) -> Iterator[str]:
    if not crash.held:
        yield "no worker was killed with leases in hand"
    for task in tasks:
        if task.id in crash.held and not any(
            error.kind == "lease_expired" and error.worker == crash.worker for error in task.errors
        ):
            yield f"task {task.id}: held by {crash.worker} when it was killed, never reclaimed"


def _of_kind(task: Task, kind: str) -> int:
    return sum(error.kind == kind for error in task.errors)


@dataclass(frozen=True, slots=True)
class Expected:
    """What should have come of it: entities, readings as they came, and those that count."""

    entities: int
    came: int
    readings: Mapping[Key, Value]
    problems: tuple[str, ...]


def expected(sent: Sequence[Notification], tasks: Sequence[Task]) -> Expected:
    """Work out what should be in the table, and hold the tasks against what was sent."""
    pairs, problems = matched(sent, tasks)
    entities = came = 0
    last: dict[Key, tuple[datetime, str, Value]] = {}
    for notification, task in pairs:
        problems += (
            f"{notification.correlator} (task {task.id}): {problem}"
            for problem in wrong_end(notification, task)
        )
        rows = expected_rows(notification, task)
        entities += len(rows)
        for row in rows:
            for key, value in _readings(row):
                came += 1
                here = (task.created_at, task.id, value)
                last[key] = max(last.get(key, here), here, key=lambda one: one[:2])
    readings = {key: value for key, (_, _, value) in last.items()}
    return Expected(entities, came, readings, tuple(problems))


def compared(expected: Mapping[Key, Value], lines: Iterable[str]) -> list[str]:
    """What is wrong with the readings that came out, each a line of JSON."""
    problems = []
    left = dict(expected)
    for line in lines:
        found = json.loads(line)
        key = _key(found, found["attribute"], found["time"])
        should_be = left.pop(key, None)
        if should_be is None:
            problems.append(f"{'/'.join(key)}: is there twice, or nobody sent it")
        elif not _same(should_be, found):
            problems.append(f"{'/'.join(key)}: is {found}, not {should_be}")
    return problems + [f"{'/'.join(key)}: is not in the table" for key in left]


def _readings(row: Row) -> Iterable[tuple[Key, Value]]:
    fields = {
        "entity_type": row.entity_type,
        "service": row.service,
        "service_path": row.service_path,
        "entity_id": row.entity_id,
    }
    for name, attribute in row.attributes.items():
        if attribute.value is not None:
            value = (attribute.type, json.dumps(attribute.value), attribute.unit)
            yield _key(fields, name, row.time_index), value


def _key(fields: Mapping[str, Any], attribute: str, time: str) -> Key:
    instant = instant_of(time)
    names = ("entity_type", "service", "service_path", "entity_id")
    return (
        *(fields[name] for name in names),
        attribute,
        "no time" if instant is None else instant_text(instant),
    )


def _same(should_be: Value, found: Mapping[str, Any]) -> bool:
    kind, text, unit = should_be
    value = json.loads(text)
    if (found["type"], found.get("unit")) != (kind, unit):
        return False
    if isinstance(value, str):
        return bool(found["text"] == value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and found.get("number") != value:
        return False
    return bool(json.loads(found["text"]) == value)
