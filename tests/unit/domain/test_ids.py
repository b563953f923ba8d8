"""Identifiers sort by time where order helps, and cannot be guessed where they grant something."""

import re
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.ids import id_fault, new_task_id, opened_at, shard_of
from headrace.domain.limits import TASK_ID_RE

NOW = datetime(2026, 11, 21, 8, 0, 0, tzinfo=UTC)
CROCKFORD = "[0-9abcdefghjkmnpqrstvwxyz]"

instants = st.datetimes(datetime(1970, 1, 1), datetime(9998, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001  hypothesis adds the zone


@given(instants)
def test_a_task_id_is_tsk_and_twenty_six_characters(now: datetime) -> None:
    task_id = new_task_id(now)

    assert re.fullmatch(rf"tsk_{CROCKFORD}{{26}}", task_id)
    assert TASK_ID_RE.fullmatch(task_id)  # also by the rule for ids that clients choose


@given(instants, instants)
def test_task_ids_sort_by_time(one: datetime, other: datetime) -> None:
    first, second = sorted((one, other))
    if second - first >= timedelta(milliseconds=1):
        assert new_task_id(first) < new_task_id(second)


@pytest.mark.parametrize(
    ("task_id", "of_two", "of_seven", "of_sixty_four"),
    [
        ("order-1", 1, 6, 47),
        ("ä", 1, 1, 3),
    ],
)
def test_a_task_stays_on_its_shard_from_release_to_release(
    task_id: str, of_two: int, of_seven: int, of_sixty_four: int
) -> None:
    """These numbers are in people's tables: a change of them would lose tasks."""
    shards = (shard_of(task_id, 2), shard_of(task_id, 7), shard_of(task_id, 64))

    assert shards == (of_two, of_seven, of_sixty_four)
    assert shard_of(task_id, 1) == 0


@pytest.mark.parametrize("shards", [7, 64])
@pytest.mark.parametrize("kind", ["ours", "counted"])
def test_tasks_spread_evenly_over_shards(shards: int, kind: str) -> None:
    count = 500 * shards
    ids = [new_task_id(NOW) if kind == "ours" else f"order-{number}" for number in range(count)]

    filled = Counter(shard_of(task_id, shards) for task_id in ids)

    assert set(filled) == set(range(shards))
    assert max(filled.values()) < 650
    assert min(filled.values()) > 350


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tsk_01", ""),
        ("tsk_01o", "ids that Headrace makes have no o"),
        ("tsk_" + "0" * 27, "have 26 characters behind tsk_"),
    ],
)
def test_an_id_that_headrace_cannot_have_made_says_why(text: str, why: str) -> None:
    assert why in id_fault(text)
    assert bool(why) == bool(id_fault(text))


def test_what_is_no_id_of_a_lease_group_was_opened_long_ago() -> None:
    assert opened_at("order-7") < NOW - timedelta(days=365)
