"""What the log keeps of a task shows the recorder what the task itself would."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given

from headrace.domain.task import Task
from headrace.domain.write import StoredView
from headrace.store.sqlite.rows import rest_of, row_of
from headrace.store.sqlite.views import RowView
from tests.unit.store.test_stream import FIELDS, left_over, lively


@given(lively | left_over)
def test_a_row_shows_of_a_task_what_the_task_shows(task: Task) -> None:
    row: list[Any] = json.loads(json.dumps(row_of(task)))
    rest, payload = row[-2:]
    size = None if payload is None else len(payload.encode())

    view = RowView._make([*row[:-2], rest_of(rest), size, payload])

    task_view = StoredView(task)
    assert view.whole() == replace(task, payload=None)
    assert {name: getattr(view, name) for name in FIELDS} == {
        name: getattr(task_view, name) for name in FIELDS
    }
