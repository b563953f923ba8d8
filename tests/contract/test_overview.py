"""What is told of many things at once, on every store: queues at a glance, flows, schedules."""

import pytest

from headrace.domain.access import Principal, Role
from headrace.domain.task import Status
from headrace.store.base import Store
from headrace.store.call_scope import acting
from tests.contract.test_recording import AT_ONCE, Recorder, new_recorder, worked
from tests.manual_clock import ManualClock

OURS = Principal("key_1", "ours", Role.VIEWER, ("ours.*",))


@pytest.fixture
def it(store: Store, clock: ManualClock) -> Recorder:
    return new_recorder(store, clock)


@pytest.mark.gate
def test_an_overview_tells_of_each_queue_what_its_stats_tell(it: Recorder) -> None:
    names = [it.world.queue(name, retry_strategy=AT_ONCE) for name in ("a", "b", "empty")]
    for name in names[:2]:
        worked(it.world, name)
        it.world.put(name, delay_in_seconds=60)
        it.record()
    stats = it.world.use.stats
    queues = it.world.use.queues.list().shown

    overview = stats.overview(queues)

    assert overview.as_of is not None
    for name in names:
        glance, whole = overview.queues[name], stats.of(name)
        assert glance.counts == whole.counts
        assert glance.age_of_oldest_ready == whole.age_of_oldest_ready
        assert glance.rates.enqueued == pytest.approx(whole.rates.enqueued, rel=0.1)
    assert overview.queues["a"].counts[Status.SCHEDULED] == 1
    assert sum(overview.queues["a"].started) == 4
    assert sum(overview.queues["empty"].started) == 0


def test_flows_are_told_to_keys_that_are_for_both_ends(it: Recorder) -> None:
    for name in ("ours.a", "ours.b", "theirs"):
        it.world.queue(name)
    it.world.put("ours.a", *["{}"] * 3)
    for task, target in zip(
        it.world.take("ours.a", 3), ("ours.b", "ours.b", "theirs"), strict=True
    ):
        it.world.say(task, "MOVED", to_queue=target)
    it.record()
    flows = it.world.use.flows

    assert [(flow.source, flow.target, flow.hour, flow.day) for flow in flows.last_day().flows] == [
        ("ours.a", "ours.b", 2, 2),
        ("ours.a", "theirs", 1, 1),
    ]
    with acting(OURS):
        seen = flows.last_day()
    assert [flow.target for flow in seen.flows] == ["ours.b"]
    assert dict(seen.enqueued) == {"ours.a": 0, "ours.b": 2}
