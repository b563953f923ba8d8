"""A filter as the audit and kept sets have it, and back."""

from datetime import UTC, datetime

import pytest

from headrace.domain.filters import EVERY_TASK, STATE_WORDS, TaskFilter, fingerprint, statuses_of
from headrace.domain.task import DeadReason, ErrorKind, Place, State, Status, Task, TaskError

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "where",
    [
        EVERY_TASK,
        TaskFilter(states=("DEAD", "pending")),
        TaskFilter(
            states=("READY",),
            tags={"service": "x,y"},
            worker="ada:1",
            scheduled_after=NOON,
            scheduled_before=NOON.replace(microsecond=1),
            min_attempts=0,
            error="no = answer",
            fingerprint="0123456789abcdef",
        ),
    ],
)
def test_what_its_fields_name_is_the_same_filter(where: TaskFilter) -> None:
    assert TaskFilter.of_fields(where.fields()) == where


def a_failed_task(state: State, attempts: int, reason: DeadReason | None = None) -> Task:
    error = TaskError(1, NOON, "ada:1", ErrorKind.FAILED, "Late", "no")
    return Task(
        id="t",
        place=Place("mail", state, 0),
        scheduled_at=NOON,
        due_at=NOON,
        created_at=NOON,
        enqueued_at=NOON,
        attempts=attempts,
        errors=(error,),
        dead_reason=reason,
    )


LATE = TaskFilter(fingerprint=fingerprint("Late", "no"))


@pytest.mark.parametrize(
    ("state", "attempts"), [(State.ENQUEUED, 1), (State.INFLIGHT, 2), (State.DEAD, 1)]
)
def test_a_fingerprint_means_what_ended_of_it_or_is_tried_again(
    state: State, attempts: int
) -> None:
    assert LATE.means(a_failed_task(state, attempts))


@pytest.mark.parametrize(
    ("state", "attempts"),
    [
        pytest.param(State.ENQUEUED, 0, id="restarted, or moved on"),
        pytest.param(State.INFLIGHT, 1, id="delivered after that"),
        pytest.param(State.SUCCEEDED, 2, id="succeeded"),
    ],
)
def test_a_fingerprint_does_not_mean_what_is_past_it(state: State, attempts: int) -> None:
    assert not LATE.means(a_failed_task(state, attempts))


def test_a_cancelled_task_did_not_end_of_its_error() -> None:
    assert not LATE.means(a_failed_task(State.DEAD, 1, DeadReason.CANCELLED))


def test_each_word_for_states_means_what_people_see_of_them() -> None:
    waits = {Status.SCHEDULED, Status.READY}
    more = {
        "ENQUEUED": waits,
        "pending": {*waits, Status.INFLIGHT},
        "failed": {Status.DEAD},
        "running": {Status.INFLIGHT},
    }

    found = {word: statuses_of(word) for word in STATE_WORDS}

    assert found == {**{str(status): {status} for status in Status}, **more}
