"""A filter as the audit and kept sets have it, and back."""

from datetime import UTC, datetime

import pytest

from headrace.domain.filters import EVERY_TASK, STATE_WORDS, TaskFilter, statuses_of
from headrace.domain.task import Status

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
