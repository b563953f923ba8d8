"""Identifiers sort by time where order helps, and cannot be guessed where they grant something."""

import re
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.ids import LeaseName, new_lease_token, new_request_token, new_task_id, shard_of
from headrace.domain.instants import instant_of
from headrace.domain.limits import TASK_ID_RE

NOW = datetime(2026, 11, 21, 8, 0, 0, tzinfo=UTC)
CROCKFORD = "[0-9abcdefghjkmnpqrstvwxyz]"

instants = st.datetimes(datetime(1970, 1, 1), datetime(9998, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001  hypothesis adds the zone
secrets = st.from_regex(rf"lse_{CROCKFORD}{{20}}", fullmatch=True)


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


def test_ids_and_tokens_are_unique_even_in_the_same_instant() -> None:
    made = [new_task_id(NOW) for _ in range(10_000)]
    made += [new_lease_token() for _ in range(10_000)]
    made += [new_request_token() for _ in range(1_000)]

    assert len(set(made)) == len(made)


def test_tokens_are_made_of_characters_that_need_no_quoting() -> None:
    assert re.fullmatch(rf"lse_{CROCKFORD}{{20}}", new_lease_token())
    assert re.fullmatch(rf"{CROCKFORD}{{10}}", new_request_token())


@pytest.mark.parametrize(
    ("task_id", "of_two", "of_seven", "of_sixty_four"),
    [("order-1", 1, 6, 47), ("tsk_01jd6wz7r0000000000000000", 1, 6, 45), ("ä", 1, 1, 3)],
)
def test_a_task_stays_on_its_shard_from_release_to_release(
    task_id: str, of_two: int, of_seven: int, of_sixty_four: int
) -> None:
    """These numbers are in people's tables: a change of them would lose tasks."""
    shards = (shard_of(task_id, 2), shard_of(task_id, 7), shard_of(task_id, 64))

    assert shards == (of_two, of_seven, of_sixty_four)
    assert shard_of(task_id, 1) == 0


@pytest.mark.parametrize("shards", [2, 7, 64])
@pytest.mark.parametrize("kind", ["ours", "counted"])
def test_tasks_spread_evenly_over_shards(shards: int, kind: str) -> None:
    count = 500 * shards
    ids = [new_task_id(NOW) if kind == "ours" else f"order-{number}" for number in range(count)]

    filled = Counter(shard_of(task_id, shards) for task_id in ids)

    assert set(filled) == set(range(shards))
    assert max(filled.values()) < 650
    assert min(filled.values()) > 350


@given(
    secrets,
    st.integers(0, 999_999_999),
    st.none() | st.text(min_size=1),
    st.none() | st.integers(0, 2**50).map(instant_of),
)
def test_a_lease_name_says_what_it_was_made_of(
    secret: str, attempt: int, worker: str | None, started_at: datetime | None
) -> None:
    name = LeaseName(secret, attempt, worker, started_at=started_at)

    assert LeaseName.parse(str(name)) == name
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", str(name))


@pytest.mark.parametrize(
    "name",
    [
        "lse_x.01.YWRh",
        "lse_x.1.YWRi=",
        "lse_x.1.YWS",
        "lse_x.1.YWT",
        "lse_x.1.YWRh.0a",
        "lse_x.1.YWRh.",
        "lse_x.1.YWRh.fffffffffffffff",
        "lse_x.1.YWRh.zz",
    ],
)
def test_a_lease_has_one_name_only(name: str) -> None:
    parsed = LeaseName.parse(name)

    assert parsed is None or str(parsed) == name


@given(st.text())
def test_what_we_did_not_write_is_no_lease_name_or_says_something_else(text: str) -> None:
    parsed = LeaseName.parse(text)  # above all, it does not raise

    assert parsed is None or parsed.secret in text
