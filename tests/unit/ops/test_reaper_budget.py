"""The reaper's minute is divided fairly: nothing holds up the rest, and nothing is forgotten."""

import json

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.task import State
from headrace.store.records.reaper import PARTS
from headrace.store.services import invoke
from tests.unit.ops.reaper_harness import ReaperDeployment
from tests.unit.push.receiver import GivenAnswer, receiving

A_PAGE = 0.18
"""Seconds that a page of 100 lapsed leases takes."""


@pytest.fixture
def there() -> ReaperDeployment:
    """Give a deployment in which one function does everything."""
    return ReaperDeployment(may_hand_on=False)


def held(there: ReaperDeployment, *queues: str) -> list[int]:
    return [there.in_state(queue, State.INFLIGHT) for queue in queues]


def test_a_queue_with_much_to_do_does_not_hold_up_the_others(there: ReaperDeployment) -> None:
    there.pass_seconds = 3.0
    for name in "abc":
        there.leased(there.queue(name), 100)
    there.leased(there.queue("aa"), 5_000)

    (reaped,) = there.minute()

    assert held(there, "a", "b", "c") == [0, 0, 0]
    assert reaped.unseen == 0
    assert 0 < held(there, "aa")[0] < 5_000


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


@pytest.mark.slow
def test_removals_and_closings_have_their_share_of_a_busy_minute(there: ReaperDeployment) -> None:
    there.pass_seconds = 10.0
    for number in range(20):
        there.leased(there.queue(f"q{number:02}"), 2_000)
    there.leased(there.queue("gone"), 5_000)
    world = there.container()
    world.use.jobs.patience = 0
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


# -- several passes at a time ------------------------------------------------------------------


@pytest.fixture
def wide() -> ReaperDeployment:
    """Give a deployment with more to do than one pass can hold, whose function may run again."""
    wide = ReaperDeployment(pass_seconds=3.0)
    for number in range(2 * PARTS):
        wide.leased(wide.queue(f"q{number:02}"), 400)
    return wide


@pytest.mark.slow
def test_another_pass_does_a_part_that_nobody_took(wide: ReaperDeployment) -> None:
    """As where the account's limit of concurrency lets only some of them run."""
    wide.lost |= set(range(PARTS)) - {0, 1, 4}
    wide.minute()

    second, third = wide.minute(), wide.minute()

    assert len(second) == 3
    assert {reaped.parts for reaped in third} == {3}
    wide.minutes_until(lambda: wide.number(State.INFLIGHT) == 0)


# -- the reaper invokes its own Lambda function ----------------------------------------------------


@pytest.mark.usefixtures("aws_credentials")
@pytest.mark.parametrize("status", [202, 403])
def test_a_function_is_invoked_without_waiting_or_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    headers = {"X-Amzn-ErrorType": "AccessDeniedException"}
    with receiving(lambda _: GivenAnswer(status, headers=headers)) as api:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", api.url.removesuffix("/hook"))
        if status == 202:
            invoke("the-reaper", {"part": 1})
        else:
            with pytest.raises(Unavailable, match="AccessDeniedException"):
                invoke("the-reaper", {"part": 1})

    (request,) = api.received
    assert request.path == "/2015-03-31/functions/the-reaper/invocations"
    assert request.headers["x-amz-invocation-type"] == "Event"
    assert json.loads(request.body) == {"part": 1}
