"""The reaper's minute is divided fairly: nothing holds up the rest, and nothing is forgotten."""

from dataclasses import replace
from datetime import timedelta

import pytest

from headrace.domain.queue import DeadLetterConfig
from headrace.domain.task import State
from headrace.store.call_scope import metered
from headrace.store.records.reaper import KIND, PARTS
from tests.unit.ops.reaper_harness import PASS_SECONDS, ReaperDeployment, ReaperKilled

A_PAGE = 0.18
"""Seconds that a page of 100 lapsed leases takes."""


@pytest.fixture
def there() -> ReaperDeployment:
    """Give a deployment in which one function does everything."""
    return ReaperDeployment(may_hand_on=False)


def held(there: ReaperDeployment, *queues: str) -> list[int]:
    return [there.in_state(queue, State.INFLIGHT) for queue in queues]


def test_a_pass_ends_in_time_and_the_next_goes_on(there: ReaperDeployment) -> None:
    there.pass_seconds = 2.0
    there.leased(there.queue("mail"), 3_000)

    (reaped,) = there.minute()

    assert reaped.cut
    assert 900 <= reaped.retried <= 1_200
    assert there.minutes_until(lambda: there.number(State.INFLIGHT) == 0) <= 2


def test_a_queue_with_much_to_do_does_not_hold_up_the_others(there: ReaperDeployment) -> None:
    there.pass_seconds = 3.0
    for name in "abc":
        there.leased(there.queue(name), 100)
    there.leased(there.queue("aa"), 5_000)

    (reaped,) = there.minute()

    assert held(there, "a", "b", "c") == [0, 0, 0]
    assert reaped.unseen == 0
    assert 0 < held(there, "aa")[0] < 5_000


@pytest.mark.slow
def test_a_queue_with_many_shards_gets_no_more_than_one_with_one(there: ReaperDeployment) -> None:
    there.pass_seconds = 4.0
    there.leased(there.queue("one"), 3_000)
    there.leased(there.queue("sixteen", shards=16), 3_000)

    there.minute()

    one, sixteen = (3_000 - number for number in held(there, "one", "sixteen"))
    assert one == pytest.approx(sixteen, rel=0.25)


def test_a_throttled_queue_is_left_alone_and_the_others_are_not(there: ReaperDeployment) -> None:
    for name in "abcde":
        there.leased(there.queue(name), 500)
    there.throttled |= {"a", "c"}

    (reaped,) = there.minute()

    assert reaped.throttled
    assert not reaped.cut
    assert held(there, *"abcde") == [500, 0, 500, 0, 0]
    there.throttled.clear()
    there.minute()
    assert there.number(State.INFLIGHT) == 0


def test_where_the_whole_table_is_throttled_the_pass_ends_and_the_next_begins_behind(
    there: ReaperDeployment,
) -> None:
    names = [f"q{number:02}" for number in range(20)]
    for name in names:
        there.leased(there.queue(name), 10)
    there.throttled |= set(names[:10])
    began = there.at

    first, second, third, fourth = (there.minute()[0] for _ in range(4))

    assert first.throttled
    assert first.unseen > 0
    assert {0} == set(held(there, *names[10:]))
    assert there.at == began + timedelta(minutes=4)
    assert second.throttled
    assert third.throttled
    assert fourth.throttled


@pytest.mark.parametrize("shards", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_a_dead_lease_behind_more_healthy_ones_than_a_pass_can_read_is_found(
    there: ReaperDeployment, shards: int
) -> None:
    """How far a partition was looked through outlives the pass, and the container."""
    there.pass_seconds = 0.2  # some ten pages of healthy tasks
    queue = there.queue("mail", shards=shards)
    there.leased(queue, 6_000, lapsed=False)
    there.leased(queue, 1, first=6_000)

    minutes = there.minutes_until(lambda: there.number(State.INFLIGHT) == 6_000, most=20)

    assert 3 <= minutes <= 12


def test_what_dies_before_where_the_last_pass_stopped_is_found_too(there: ReaperDeployment) -> None:
    there.pass_seconds = 0.2
    queue = there.queue("mail")
    there.leased(queue, 3_000, lapsed=False)
    there.minute()
    there.minute()
    there.at += timedelta(days=2)
    there.renew(queue, but=f"{queue}-{7:07}", until=there.at + timedelta(days=1))

    assert there.minutes_until(lambda: there.number(State.INFLIGHT) == 2_999, most=10) <= 8


def test_a_pass_with_time_for_it_looks_at_what_is_before_where_the_last_one_stopped(
    there: ReaperDeployment,
) -> None:
    there.pass_seconds = 0.2
    queue = there.queue("mail")
    there.leased(queue, 3_000, lapsed=False)
    there.minute()
    there.at += timedelta(minutes=5)
    there.renew(queue, but=f"{queue}-{7:07}", until=there.at + timedelta(days=1))
    there.lapse(f"{queue}-{7:07}")
    there.pass_seconds = PASS_SECONDS

    (reaped,) = there.minute()

    assert (reaped.retried, reaped.healthy) == (1, 2_999)


def test_queues_that_a_pass_did_not_come_to_are_first_in_the_next(there: ReaperDeployment) -> None:
    there.pass_seconds = 1.0
    names = [f"q{number:03}" for number in range(200)]
    for name in names:
        there.leased(there.queue(name), 3)

    (first,) = there.minute()
    assert first.cut
    assert first.unseen > 100
    unseen = 200 - first.unseen
    (second,) = there.minute()
    assert second.retried == pytest.approx(first.retried, rel=0.3)
    assert (
        there.minutes_until(lambda: there.number(State.INFLIGHT) == 0, most=10) <= 200 / unseen + 2
    )


def test_where_a_queue_kills_each_pass_others_are_looked_at_all_the_same(
    there: ReaperDeployment,
) -> None:
    """No record can be left then, so a pass without one begins elsewhere each minute."""
    for number in range(7):
        there.leased(there.queue(f"q{number}"), 1)
    there.deadly = "q3"

    for _ in range(7):
        with pytest.raises(ReaperKilled):
            there.minute()
        there.at += timedelta(minutes=1)

    assert held(there, *(f"q{number}" for number in range(7))) == [0, 0, 0, 1, 0, 0, 0]


@pytest.mark.slow
def test_removals_and_closings_have_their_share_of_a_busy_minute(there: ReaperDeployment) -> None:
    there.pass_seconds = 10.0
    for number in range(20):
        there.leased(there.queue(f"q{number:02}"), 2_000)
    there.leased(there.queue("gone"), 5_000)
    world = there.container()
    world.use.queues.removals = replace(world.use.queues.removals, patience=0)
    assert not world.use.queues.delete("gone")
    group = world.use.leases.open("stage", keepalive=60)
    there.grouped("q00", 3_000, group)
    world.use.leases.patience = -1
    world.use.leases.close(group.id)

    (reaped,) = there.minute()

    assert reaped.cut
    share = 10.0 / 5
    assert reaped.released >= 0.8 * share / A_PAGE * 100
    assert reaped.purged >= 0.8 * share / (2.5 * A_PAGE) * 250
    assert reaped.retried >= 0.8 * 3 * share / A_PAGE * 100


@pytest.mark.slow
def test_evictions_go_on_beside_lapsed_leases_of_the_same_queue(there: ReaperDeployment) -> None:
    there.pass_seconds = 5.0
    queue = there.queue("mail", dead_letter_queue_config=DeadLetterConfig(max_size=100))
    there.leased(queue, 5_000)
    there.dead(queue, 1_500)

    (reaped,) = there.minute()

    assert reaped.cut
    assert reaped.evicted >= 300
    assert reaped.retried >= 500
    there.minutes_until(lambda: there.in_state(queue, State.DEAD) == 100, most=10)


def test_every_expired_task_is_found_within_the_hour_whatever_is_before_it(
    there: ReaperDeployment,
) -> None:
    """Those with an expiry of their own stand behind hundreds that live longer."""
    for number in range(5):
        queue = there.queue(f"q{number}", expires_in_seconds=0)
        there.waiting(queue, 250)
        there.waiting(queue, 2, first=250, expires=there.at + timedelta(minutes=1))

    minutes = there.minutes_until(lambda: there.number(State.ENQUEUED) == 5 * 250, most=62)

    assert minutes > 1


def test_a_calm_minute_writes_nothing_and_reads_little(there: ReaperDeployment) -> None:
    there.queue("mail")
    world = there.container()
    requests = world.store.requests  # type: ignore[attr-defined]

    with metered() as meter:
        reaped = world.use.reaping.run()

    assert not reaped.cut
    # What is left, queues, closings, removals; and two partitions of the queue.
    assert world.store.requests - requests == 6  # type: ignore[attr-defined]
    assert meter.write == 0
    assert there.memory.records(KIND, limit=9) == ((), False)


def test_what_was_left_of_a_busy_time_goes_when_it_is_over(there: ReaperDeployment) -> None:
    there.pass_seconds = 1.0
    there.leased(there.queue("mail"), 2_000)
    there.minute()
    assert there.memory.records(KIND, limit=9)[0]

    there.minutes_until(lambda: there.number(State.INFLIGHT) == 0)
    there.minute()

    assert there.memory.records(KIND, limit=9) == ((), False)


# -- several passes at a time ------------------------------------------------------------------


@pytest.fixture
def wide() -> ReaperDeployment:
    """Give a deployment with more to do than one pass can hold, whose function may run again."""
    wide = ReaperDeployment(pass_seconds=3.0)
    for number in range(2 * PARTS):
        wide.leased(wide.queue(f"q{number:02}"), 400)
    return wide


def test_what_one_pass_cannot_hold_is_divided_among_several(wide: ReaperDeployment) -> None:
    first, second, third = wide.minute(), wide.minute(), wide.minute()

    assert [len(first), len(second)] == [1, PARTS]
    assert first[0].cut
    assert {reaped.parts for reaped in second} == {PARTS}
    assert wide.number(State.INFLIGHT) == 0
    done = [reaped.retried for reaped in second]
    assert min(done) > 0.5 * max(done)  # parts are of one size
    # Nobody was in anybody's way: what was found was taken back by who found it.
    assert sum(reaped.healthy for reaped in first + second + third) == 0
    calm = [wide.minute() for _ in range(2)]
    assert [len(passes) for passes in calm][-1] == 1


@pytest.mark.slow
def test_a_part_that_cannot_be_handed_on_is_done_by_who_wanted_to(wide: ReaperDeployment) -> None:
    wide.refused |= set(range(1, PARTS))
    wide.minute()
    before = wide.by_queue(State.INFLIGHT)

    (second,) = wide.minute()

    assert second.parts == PARTS
    after = wide.by_queue(State.INFLIGHT)
    # Its own part has two queues.
    assert sum(after[queue] < number for queue, number in before.items()) > 10
    wide.minutes_until(lambda: wide.number(State.INFLIGHT) == 0)


@pytest.mark.slow
def test_another_pass_does_a_part_that_nobody_took(wide: ReaperDeployment) -> None:
    """As where the account's limit of concurrency lets only some of them run."""
    wide.lost |= set(range(PARTS)) - {0, 1, 4}
    wide.minute()

    second, third = wide.minute(), wide.minute()

    assert len(second) == 3
    assert {reaped.parts for reaped in third} == {3}
    wide.minutes_until(lambda: wide.number(State.INFLIGHT) == 0)


@pytest.mark.slow
def test_many_queues_with_nothing_to_do_are_looked_at_every_minute_by_as_many_as_it_takes() -> None:
    wide = ReaperDeployment(pass_seconds=PASS_SECONDS / 10)
    for number in range(1_000):
        wide.queue(f"q{number:04}")

    unseen = [sum(reaped.unseen for reaped in wide.minute()) for _ in range(6)]

    assert unseen[0] > 0
    assert unseen[1:] == [0] * 5
