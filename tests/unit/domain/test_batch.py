"""The numbers of a batch: what adds up, what is bounded, and when it is complete."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.domain.batch import (
    DEAD_IDS,
    MANY,
    QUEUES,
    RESULTS,
    BatchDelta,
    BatchEvent,
    TaskBatch,
)

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
EMPTY = TaskBatch(
    "b", None, "digest", tuple(BatchEvent), created_at=NOW, expires_at=NOW + timedelta(days=1)
)


def counted(batch: TaskBatch, delta: BatchDelta, version: int = 1) -> TaskBatch:
    return batch.counted(delta, buffer="3", version=version, at=NOW)


@pytest.mark.parametrize(
    ("changed", "complete"),
    [
        ({}, True),
        ({"direct": 1}, False),
        ({"total": None}, False),
        ({"owed": 5}, False),
        ({"live": 1}, False),
        ({"live": -1}, False),
        ({"dead": 1, "succeeded": 1}, True),
    ],
)
def test_three_numbers_say_whether_it_is_complete(changed: dict[str, Any], complete: bool) -> None:  # noqa: FBT001  what is expected
    batch = replace(EMPTY, total=2, direct=2, succeeded=2)

    assert replace(batch, **changed).complete is complete


def test_what_was_counted_once_is_not_counted_again() -> None:
    batch = counted(EMPTY, BatchDelta(direct=1, created=1, live=1))

    assert counted(batch, BatchDelta(live=5)) is batch
    assert counted(batch, BatchDelta(live=5), version=2).live == 6


def test_lists_are_bounded() -> None:
    delta = BatchDelta()
    for number in range(500):
        delta.merge(BatchDelta(born=[f"t{number}"], died=[f"t{number}"], queues=[f"q{number}"]))
    batch = counted(EMPTY, delta)

    assert len(delta.born) == RESULTS
    assert batch.dead_ids == tuple(f"t{number}" for number in range(DEAD_IDS))
    assert len(delta.queues) == QUEUES + 1
    assert batch.queues == (MANY,)
    assert counted(batch, BatchDelta(queues=["one"]), version=2).queues == (MANY,)


def test_who_is_restarted_is_not_named_any_more() -> None:
    delta = BatchDelta(died=["a", "b"])
    delta.merge(BatchDelta(revived=["a"]))
    delta.merge(BatchDelta(revived=["c"]))

    assert (delta.died, delta.revived) == (["b"], ["c"])
    batch = counted(replace(EMPTY, dead_ids=("c", "d")), delta)
    assert batch.dead_ids == ("d", "b")
    delta.merge(BatchDelta(died=["c"]))
    assert (delta.died, delta.revived) == (["b"], [])


@pytest.mark.parametrize(
    ("delta", "live", "failure_known", "due"),
    [
        (BatchDelta(created=5, born=["a"]), 5, False, False),
        (BatchDelta(moves=1), 0, False, True),
        (BatchDelta(moves=1), -1, False, True),
        (BatchDelta(moves=1), 1, False, False),
        (BatchDelta(moves=1, deaths=1), 1, False, True),
        (BatchDelta(moves=1, deaths=1), 1, True, False),
    ],
)
def test_an_end_waits_while_others_are_live_and_the_first_death_never(
    delta: BatchDelta,
    live: int,
    failure_known: bool,  # noqa: FBT001  one of a row
    due: bool,  # noqa: FBT001  likewise
) -> None:
    delta.decide(live, failure_known=failure_known)

    assert delta.due is due
