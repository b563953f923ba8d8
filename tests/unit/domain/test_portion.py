"""Every waiting task is one worker's, and of each worker in turn."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.change import Entry
from headrace.domain.task import Place, State
from headrace.domain.worker import TURN, Portion, portion
from tests.manual_clock import ManualClock

NOW = ManualClock()()
COUNTS = st.integers(1, 9)


def waiting(task_id: str, shard: int = 0) -> Entry:
    return Entry(task_id, Place("mail", State.ENQUEUED, shard), NOW)


def names(count: int) -> list[str]:
    return [f"host-{number}" for number in range(count)]


def portions(members: int, shards: int, turn: int = 0) -> list[Portion]:
    found = [portion(names(members), name, shards, NOW + turn * TURN) for name in names(members)]
    return [one for one in found if one is not None]


@given(members=COUNTS, shards=COUNTS, shard=st.integers(0, 12), task_id=st.text(min_size=1))
def test_a_task_is_one_members_and_the_others_stand_in_a_row(
    members: int, shards: int, shard: int, task_id: str
) -> None:
    task = waiting(task_id, shard)

    row = sorted((one.away(task), one.rank) for one in portions(members, shards))

    assert [away for away, _ in row] == list(range(members))
    owner = next(one for one in portions(members, shards) if one.rank == row[0][1])
    assert owner.shares(shard)


@given(members=COUNTS, shards=COUNTS, shard=st.integers(0, 12), task_id=st.text(min_size=1))
def test_in_as_many_turns_as_there_are_members_each_has_each_task_once(
    members: int, shards: int, shard: int, task_id: str
) -> None:
    task = waiting(task_id, shard)

    owners = [
        place
        for turn in range(members)
        for place, one in enumerate(portions(members, shards, turn))
        if one.away(task) == 0
    ]

    assert sorted(owners) == list(range(members))


@given(members=COUNTS, shards=COUNTS, shard=st.integers(0, 8))
def test_so_many_share_a_shard_as_may_own_its_tasks(members: int, shards: int, shard: int) -> None:
    shard %= shards
    sharing = [one for one in portions(members, shards) if one.shares(shard)]

    assert {one.sharing(shard) for one in sharing} == {len(sharing)}


def test_members_of_one_shard_have_about_as_many_tasks_each() -> None:
    tasks = [waiting(f"task-{number}") for number in range(1600)]

    shares = [sum(one.away(task) == 0 for task in tasks) for one in portions(16, 1)]

    assert min(shares) > 60
    assert max(shares) < 140


def test_each_time_a_task_is_overtaken_twice_as_many_members_may_take_it() -> None:
    task = waiting("task-1")
    members = portions(6, 1)

    may = [sum(one.may_take(task, overtaken) for one in members) for overtaken in range(4)]

    assert may == [1, 2, 4, 6]


def test_one_who_is_not_on_the_list_has_no_part() -> None:
    assert portion(names(3), "another", 1, NOW) is None
