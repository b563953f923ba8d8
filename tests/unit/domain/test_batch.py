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
    Callback,
    TaskBatch,
    hash_of,
    owed_for,
    with_spawned,
)
from headrace.domain.ids import new_batch_id, new_task_id
from headrace.domain.plan import TaskSpec
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import Membership
from headrace.store.base import Record
from headrace.store.records import batches as batch_records
from headrace.store.sqlite.units import record_bytes

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


def test_what_is_owed_and_what_is_born_cancel_out() -> None:
    parent = (Membership("b"), Membership("other", spawned=7))
    after = with_spawned(parent, [("x", ["b"]), ("y", ["b", "other"]), ("z", [])])

    assert after[0].spawned == owed_for(["x", "y"])
    assert after[1].spawned == (7 + hash_of("y")) % 2**64
    delta = BatchDelta(owed=after[0].spawned)
    for child in ("y", "x"):
        delta.merge(BatchDelta(owed=-hash_of(child) % 2**64))
    assert delta.owed == 0


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


def test_a_delta_is_kept_as_it_is() -> None:
    numbers = (1, 2**64 - 1, 3, -4, 5, 6, 7, 8, 9)
    delta = BatchDelta(*numbers, ["a"], ["q"], ["d"], ["r"], 5, 6, due=True)

    assert BatchDelta.of(delta.body()) == delta
    assert BatchDelta.of(BatchDelta(live=1).body()) == BatchDelta(live=1)


def test_a_delta_of_the_first_form_is_read() -> None:
    """Buffers that were written before hold ends that were to be posted at once."""
    body = {"numbers": "1 2 3 -4 5 6 7 8 9", "at": [10, 11], "born": ["a"], "died": ["d"]}

    assert BatchDelta.of(body) == BatchDelta(
        1, 2, 3, -4, 5, 6, 7, 8, 9, ["a"], [], ["d"], [], 10, 11, due=True
    )
    assert not BatchDelta.of({"numbers": "1 0 1 1 0 0 0 0 0"}).due


def test_a_batch_and_its_callbacks_are_kept_as_they_are() -> None:
    batch = replace(
        counted(
            EMPTY,
            BatchDelta(owed=2**64 - 1, deaths=1, died=["x"], born=["x", "y"], queues=["q"]),
        ),
        total=0,
        finished_at=NOW,
        version=7,
    )
    callback = Callback(
        "q",
        TaskSpec(
            '"' * 300_000, scheduled_at=NOW, retry=RetryStrategy(max_retries=1), batches=("o",)
        ),
    )

    assert batch_records.from_record(batch_records.to_record(batch)) == batch
    assert batch_records.from_record(batch_records.to_record(EMPTY)) == EMPTY
    record = batch_records.callback_record(batch, BatchEvent.ENDED, callback)
    assert batch_records.callback_of(record) == callback
    assert len(str(record.body)) < 300_000


def test_records_of_the_first_form_are_read() -> None:
    record = batch_records.to_record(EMPTY)
    old = replace(record, body={**record.body, "dead_ids": ["x", "y"]})
    chunk = batch_records.members_record("b", 0, ["a"], version=1, until=NOW)

    assert batch_records.from_record(old) == replace(EMPTY, dead_ids=("x", "y"))
    assert batch_records.members_of(replace(chunk, body={"ids": ["a", "b"]})) == ["a", "b"]


def test_names_stay_with_the_numbers_while_they_make_no_write_dearer() -> None:
    ids = [new_task_id(NOW + timedelta(seconds=number)) for number in range(RESULTS)]
    batch = replace(EMPTY, id=new_batch_id(NOW), queues=("work", "mail"))

    room = max(
        number
        for number in range(RESULTS)
        if batch_records.fits(replace(batch, members=tuple(ids[:number])))
    )

    assert 30 < room < RESULTS
    fitting = batch_records.to_record(replace(batch, members=tuple(ids[:room])))
    assert record_bytes(fitting) <= 1024
    small = [batch_records.is_small(chunk_of(ids[:number])) for number in range(RESULTS)]
    assert 40 < small.index(False) < 70
    assert record_bytes(chunk_of(ids[: small.index(False) - 1])) <= 1024


def chunk_of(ids: list[str]) -> Record:
    return batch_records.members_record(new_batch_id(NOW), 0, ids, version=1, until=NOW)
