"""What a batch counts of its members, in whatever order their changes come."""

from dataclasses import replace
from datetime import UTC, datetime

from headrace.domain.batch import BatchDelta, TaskBatch
from headrace.domain.times import micros_of

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
BATCH = TaskBatch("bat_1", 1, "digest", (), NOW, NOW, created=1, live=1)


def merged(*deltas: BatchDelta) -> BatchDelta:
    """Return what *deltas* count together, after all of them were written and read again."""
    whole = BatchDelta()
    for delta in deltas:
        whole.merge(delta)
    return BatchDelta.of(whole.body())


def test_a_member_that_dies_and_is_revived_is_not_dead_and_one_that_dies_again_is() -> None:
    died, revived = BatchDelta(died=["a", "b"]), BatchDelta(revived=["a", "c"])

    once = merged(died, revived)
    assert (once.died, once.revived) == (["b"], ["c"])
    again = merged(once, BatchDelta(died=["c", "a"]))
    assert (again.died, again.revived) == (["b", "a"], [])


def test_a_change_that_a_recount_or_a_buffer_has_counted_is_not_counted_again() -> None:
    recounted = replace(BATCH, recounted_until=NOW)
    old = BatchDelta(created=1, live=1, first_at=5, last_at=micros_of(NOW))
    new = BatchDelta(live=-1, succeeded=1, first_at=5, last_at=micros_of(NOW) + 1)

    skipped = recounted.with_delta(old, buffer="b", version=1, at=NOW)
    counted = skipped.with_delta(new, buffer="b", version=2, at=NOW)

    assert skipped == replace(recounted, posted={"b": 1})
    assert (counted.live, counted.succeeded) == (0, 1)
    assert counted.with_delta(new, buffer="b", version=2, at=NOW) == counted
