"""What is told of many things at once, on every store: queues at a glance, flows, schedules."""

import pytest

from headrace.domain.access import Principal, Role
from headrace.domain.errors import Forbidden
from headrace.domain.instants import micros_of
from headrace.domain.schedule import Schedule, ScheduleSettings
from headrace.domain.task import Status
from headrace.history.tally import MINUTE, Activity
from headrace.history.throughput import SLOTS, Throughput, grown, throughput_of
from headrace.history.transitions import Event, Happening
from headrace.ops.shared.paging import Found
from headrace.store.base import Store
from headrace.store.call_scope import metered
from tests.contract.test_recording import AT_ONCE, Recorder, new_recorder, worked
from tests.manual_clock import ManualClock

OURS = Principal("key_1", "ours", Role.VIEWER, ("ours.*",))
EVERYWHERE = Principal("key_2", "all", Role.VIEWER, ("*",))


@pytest.fixture
def it(store: Store, clock: ManualClock) -> Recorder:
    return new_recorder(store, clock)


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


def test_where_much_is_ready_the_counts_are_the_recorders(it: Recorder) -> None:
    queue = it.world.queue()
    for _ in range(12):
        it.world.put(queue, *["{}"] * 10)
    it.world.put(queue, *["{}"] * 7, delay_in_seconds=600)
    it.record()
    it.world.clock.forward(1)

    glance = it.world.use.stats.overview([it.world.use.queues.get(queue)]).queues[queue]

    assert (glance.counts[Status.READY], glance.counts[Status.SCHEDULED]) == (120, 7)


def test_an_overview_of_many_queues_is_a_few_reads_for_each(it: Recorder) -> None:
    for number in range(12):
        worked(it.world, it.world.queue(f"queue-{number}", retry_strategy=AT_ONCE))
    it.record()
    queues = it.world.use.queues.list(limit=100).shown

    with metered() as meter:
        it.world.use.stats.overview(queues)

    assert meter.read <= 1 * len(queues) + 10


def test_tasks_past_their_retention_are_not_told(it: Recorder) -> None:
    queue = it.world.queue(history_retention_in_seconds=60)
    it.world.put(queue)
    it.world.say(it.world.one(queue), "SUCCEEDED")
    it.record()
    seen = it.world.use.queues.get(queue)
    stats = it.world.use.stats
    assert stats.overview([seen]).queues[queue].counts[Status.SUCCEEDED] == 1

    it.world.clock.forward(120)

    assert stats.overview([seen]).queues[queue].counts[Status.SUCCEEDED] == 0


def test_how_busy_a_queue_was_stays_for_an_hour(it: Recorder) -> None:
    queue = it.world.queue()
    for _ in range(15):
        it.world.put(queue)
        it.world.take(queue)
        it.record()
        it.world.clock.forward(300)
    totals = it.recording.counters.totals()

    started = totals.throughput(queue).hour(micros_of(it.world.clock()))

    assert list(started) == [1] * SLOTS


def test_paces_take_the_room_they_are_given_and_the_busiest_stay() -> None:
    def busy(number: int) -> Activity:
        activity = Activity()
        for _ in range(number):
            activity.add(Happening(Event.STARTED, "q", 0))
        return activity

    minutes = {f"queue-{number:03}": {7: busy(number)} for number in range(1, 200)}
    body = grown({}, minutes, 8 * MINUTE, 1_000)

    assert "queue-199" in body
    assert "queue-001" not in body
    assert sum(len(queue) + len(text) for queue, text in body.items()) <= 1_000
    assert throughput_of(body, "queue-199").started == {1: 199}
    assert throughput_of(body, "queue-001") == Throughput()
    assert grown(body, {}, 200 * MINUTE, 1_000) == {}


def test_what_a_queue_moves_on_goes_out_of_it(it: Recorder) -> None:
    source, target = it.world.queue("source"), it.world.queue("target")
    it.world.put(source, *["{}"] * 3)
    for task in it.world.take(source, 3):
        it.world.say(task, "MOVED", to_queue=target)
    it.record()
    stats, queues = it.world.use.stats, it.world.use.queues.list().shown

    rates = stats.overview(queues).queues[source].rates

    assert rates == stats.of(source).rates
    assert (rates.succeeded, rates.out) == (0, rates.moved)
    assert rates.moved == rates.dequeued > 0


def test_what_grew_and_died_in_five_minutes_is_told(it: Recorder) -> None:
    queue = it.world.queue(retry_strategy=AT_ONCE)
    it.world.put(queue, *["{}"] * 6)
    it.record()
    it.world.clock.forward(6 * 60)
    it.world.put(queue, *["{}"] * 3)
    it.record()
    it.world.clock.forward(1)

    glance = it.world.use.stats.overview([it.world.use.queues.get(queue)]).queues[queue]

    assert (glance.counts[Status.READY], glance.grown, glance.died) == (9, 3, 0)


def test_a_throughput_is_written_as_before_where_nothing_moves_on() -> None:
    before = "7 1|35 9 8 7 6 36 1 1 1 0"

    throughput = Throughput.of(before)
    assert throughput.recent == {35: [9, 8, 7, 6, 0], 36: [1, 1, 1, 0, 0]}
    assert throughput.text() == before

    throughput.recent[36][-1] = 5
    assert Throughput.of(throughput.text()) == throughput


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

    assert [
        (flow.source, flow.target, flow.hour, flow.day) for flow in flows.seen_by(EVERYWHERE).flows
    ] == [
        ("ours.a", "ours.b", 2, 2),
        ("ours.a", "theirs", 1, 1),
    ]
    seen = flows.seen_by(OURS)
    assert [flow.target for flow in seen.flows] == ["ours.b"]
    assert dict(seen.enqueued) == {"ours.a": 0, "ours.b": 2}


def test_flows_are_some_reads_however_many_queues(it: Recorder) -> None:
    for number in range(20):
        it.world.queue(f"queue-{number}")
        it.world.put(f"queue-{number}")
    it.record()

    with metered() as meter:
        it.world.use.flows.seen_by(EVERYWHERE)

    assert meter.read <= 20


def test_schedules_are_listed_in_pages_and_only_those_of_ones_queues(it: Recorder) -> None:
    for queue in ("ours.a", "theirs"):
        it.world.queue(queue)
        for number in range(3):
            it.world.use.schedules.put(queue, f"s{number}", ScheduleSettings(every_seconds=60))
    schedules = it.world.use.schedules

    def names(page: Found[Schedule]) -> list[str]:
        return [f"{each.queue}/{each.name}" for each in page.shown]

    first = schedules.seen_by(EVERYWHERE, limit=4)
    second = schedules.seen_by(EVERYWHERE, limit=4, cursor=first.cursor)
    assert names(first) == ["ours.a/s0", "ours.a/s1", "ours.a/s2", "theirs/s0"]
    assert (names(second), second.cursor) == (["theirs/s1", "theirs/s2"], None)
    own = schedules.seen_by(OURS, limit=3)
    assert names(own) == ["ours.a/s0", "ours.a/s1", "ours.a/s2"]
    it.world.use.queues.delete("theirs")
    it.world.clock.forward(60)
    assert names(schedules.seen_by(EVERYWHERE)) == names(own)


def test_a_preview_writes_nothing_and_tells_what_saving_leads_to(it: Recorder) -> None:
    queue = it.world.queue()
    schedules = it.world.use.schedules
    settings = ScheduleSettings(cron="0 9 * * 1-5", timezone="Europe/Madrid")

    runs = schedules.preview(queue, "workdays", settings, 5)

    assert schedules.seen_by(EVERYWHERE).shown == ()
    saved = schedules.put(queue, "workdays", settings).schedule
    assert schedules.coming(saved, 5) == runs
    assert len(runs) == 5


def test_a_preview_of_an_interval_that_stays_keeps_its_beat(it: Recorder) -> None:
    queue = it.world.queue()
    schedules = it.world.use.schedules
    old = schedules.put(queue, "beat", ScheduleSettings(every_seconds=600)).schedule
    it.world.clock.forward(100)
    same = ScheduleSettings(every_seconds=600, payload="[]")

    assert schedules.preview(queue, "beat", same, 2) == schedules.coming(old, 2)


def test_only_who_may_read_is_told_anything(it: Recorder) -> None:
    nowhere = Principal("key_3", "nowhere", Role.VIEWER, ())
    it.world.queue()
    it.world.put("mail")
    it.record()

    assert it.world.use.flows.seen_by(nowhere).flows == ()
    assert it.world.use.schedules.seen_by(nowhere).shown == ()
    assert it.counts("mail")[0] == 1
    with pytest.raises(Forbidden):
        it.world.use.keys.get(nowhere, "key_00000000000000000000")
