"""Whether every reading that should be in the table is there, and no other.

What should be there is worked out here a second time, in plain Python and without Spark: from the
notifications as they were sent, and from the time at which the service took each.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from examples.ngsi.accounting import expected_rows, matched, wrong_end
from examples.ngsi.ngsi import Row
from examples.ngsi.traffic import Notification
from examples.ngsi.values import instant_of, instant_text
from headrace.wire.tasks import Task

Key = tuple[str, ...]
Value = tuple[str, str, str | None]
"""What a reading says: type, value as JSON, unit."""


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
