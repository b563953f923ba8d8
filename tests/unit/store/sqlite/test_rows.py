"""A task as a row, with values of the kinds that bodies bring."""

import sqlite3
from datetime import UTC, datetime

import pytest

from headrace.domain.instants import micros_of
from headrace.domain.task import Place, State, Task
from headrace.http.rawjson import JsonText
from headrace.store.sqlite.rows import IndexEntries, insert, row_of, task_of

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def test_what_a_body_says_is_kept_as_the_text_it_is() -> None:
    reported = Task(
        id="one",
        place=Place("mail", State.SUCCEEDED, 0),
        scheduled_at=NOW,
        due_at=NOW,
        created_at=NOW,
        enqueued_at=NOW,
        payload=JsonText("{}"),
        result=JsonText('{"sent": true}'),
    )

    kept = task_of(row_of(reported))

    assert kept == reported
    assert type(kept.result) is str


def test_an_entry_is_remembered_as_long_as_its_row_says_the_same() -> None:
    entries, at = IndexEntries(), micros_of(NOW)
    here, there = Place("mail", State.ENQUEUED, 0), Place("other", State.ENQUEUED, 0)
    (first,) = entries.of(here, [("one", at, None, None, at, None)])

    same, later = entries.of(
        here, [("one", at, None, None, at, None), ("one", at + 1, None, None, at, None)]
    )
    (elsewhere,) = entries.of(there, [("one", at, None, None, at, None)])

    assert same is first
    assert (first.scheduled_at, first.due_at) == (NOW, NOW)
    assert (micros_of(later.scheduled_at), later.due_at) == (at + 1, NOW)
    assert (elsewhere.place, first.place) == (there, here)


@pytest.mark.parametrize("count", [0, 1, 25, 26, 60])
def test_so_many_rows_are_inserted_or_take_the_place_of_others(count: int) -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text)")
    then = "ON CONFLICT (id) DO UPDATE SET text = excluded.text"

    for text in ("before", "after"):
        insert(db, "notes (id, text)", [(number, text) for number in range(count)], then)

    assert db.execute("SELECT * FROM notes").fetchall() == [(n, "after") for n in range(count)]
    db.close()
