"""A task as a row, with values of the kinds that bodies bring."""

from datetime import UTC, datetime

from headrace.domain.task import Place, State, Task
from headrace.http.rawjson import JsonText
from headrace.store.sqlite.rows import row_of, task_of

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
