"""What every store promises about batches: what is counted, and what is called back, once.

Long, because it is a list of promises, a test for each.
"""

from datetime import timedelta
from typing import Any

import pytest

from headrace.domain import limits
from headrace.domain.access import Principal, Role
from headrace.domain.batch import DEAD_IDS, RESULTS, BatchEvent, Callback, FoundMembers, TaskBatch
from headrace.domain.errors import (
    BatchExists,
    BatchFinished,
    Forbidden,
    InvalidRequest,
    NotFound,
    Unavailable,
)
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import DeadLetterConfig
from headrace.domain.task import BatchEnd, Priority, State, Task
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.store.base import Store
from headrace.store.call_scope import acting, metered
from headrace.store.records.batches import from_record
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import hooked, lease_name, new_world, overtaken
from tests.manual_clock import ManualClock
from tests.streamed import SHARD, Streamed

ENDED, SUCCEEDED, FAILED = BatchEvent.ENDED, BatchEvent.SUCCEEDED, BatchEvent.FAILED
BARE: dict[str, Any] = {
    "history_retention_in_seconds": 0,
    "dead_letter_queue_config": DeadLetterConfig(enable=False),
}


class Recorded:
    """A service whose log a recorder reads when told."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.stream = Streamed(store, clock)
        self.world = new_world(self.stream.store, clock)
        self.use = self.world.use
        self.clock = clock
        self.world.queue("work")
        self.world.queue("told")

    def batch(self, *events: BatchEvent, id: str = "b", total: int | None = None) -> TaskBatch:
        on = {event: Callback("told", TaskSpec(f'"{event}"')) for event in events or (ENDED,)}
        return self.use.task_batches.create(on, batch_id=id, total=total).batch

    def record(self) -> None:
        self.use.recording.record(SHARD, self.stream.taken())

    def finish(self, number: int = 1, status: str = "SUCCEEDED", **fields: Any) -> list[Task]:
        tasks = list(self.world.take("work", number))
        reports = [
            TaskReport(task.id, lease_name(task), ReportStatus(status), **fields) for task in tasks
        ]
        self.use.reports.report("work", reports)
        return tasks

    def see(self, id: str = "b") -> TaskBatch:
        return self.use.task_batches.get(id)

    def told(self) -> list[Task]:
        return list(self.world.take("told", 25))


@pytest.fixture
def recorded(store: Store, clock: ManualClock) -> Recorded:
    return Recorded(store, clock)


def numbers(batch: TaskBatch) -> tuple[int, int, int, int, int]:
    return (batch.created, batch.live, batch.succeeded, batch.dead, batch.deleted)


@pytest.mark.gate
def test_a_batch_calls_back_when_its_last_member_has_ended(recorded: Recorded) -> None:
    recorded.batch(ENDED, SUCCEEDED, FAILED)
    recorded.world.put("work", "1", "2", batches=("b",))
    recorded.use.task_batches.close("b", 2)
    recorded.finish()
    recorded.record()
    assert recorded.told() == []

    recorded.finish()
    recorded.record()

    told = recorded.told()
    assert {task.payload for task in told} == {'"ended"', '"succeeded"'}
    assert {task.batch for task in told} == {BatchEnd("b", 2, 2, 0, 0)}
    batch = recorded.see()
    assert numbers(batch) == (2, 0, 2, 0, 0)
    assert batch.finished_at is not None
    assert {event: one.task_id for event, one in batch.fired.items()} == {
        BatchEvent(str(task.payload).strip('"')): task.id for task in told
    }


def test_the_first_dead_member_is_told_at_once(recorded: Recorded) -> None:
    recorded.batch(ENDED, FAILED)
    recorded.world.put("work", "1", "2", batches=("b",))
    (task,) = recorded.finish(status="FAILED", retryable=False)
    recorded.record()

    (told,) = recorded.told()

    assert (told.payload, told.batch) == ('"failed"', BatchEnd("b", 2, 0, 1, 0))
    assert recorded.see().dead_ids == (task.id,)


def test_a_dead_member_that_is_restarted_before_it_is_counted_is_told(recorded: Recorded) -> None:
    recorded.batch(FAILED)
    (task_id,) = recorded.world.put("work", batches=("b",))
    recorded.finish(status="FAILED", retryable=False)
    recorded.use.bulk.by_ids("work", BulkAction.RESTART, [task_id])
    recorded.record()

    assert [task.payload for task in recorded.told()] == ['"failed"']


def test_a_restart_lets_it_succeed_after_all(recorded: Recorded) -> None:
    recorded.batch(ENDED, SUCCEEDED, total=1)
    (task_id,) = recorded.world.put("work", batches=("b",))
    recorded.finish(status="FAILED", retryable=False)
    recorded.record()
    assert [task.payload for task in recorded.told()] == ['"ended"']

    recorded.use.bulk.by_ids("work", BulkAction.RESTART, [task_id])
    recorded.finish()
    recorded.record()

    assert [task.payload for task in recorded.told()] == ['"succeeded"']
    assert numbers(recorded.see()) == (1, 0, 1, 0, 0)
    assert recorded.see().dead_ids == ()


def test_children_that_are_named_into_it_are_waited_for(recorded: Recorded) -> None:
    recorded.batch(total=1)
    recorded.world.put("work", batches=("b",))
    spawn = tuple(("work", TaskSpec(text, batches=("b",))) for text in ("1", "2"))
    recorded.finish(spawn=spawn)
    recorded.record()
    recorded.finish()
    recorded.record()
    assert recorded.told() == []

    recorded.finish()
    recorded.record()

    assert [task.batch for task in recorded.told()] == [BatchEnd("b", 3, 3, 0, 0)]


def test_a_child_that_nobody_names_is_no_member(recorded: Recorded) -> None:
    recorded.batch(total=1)
    recorded.world.put("work", batches=("b",))
    recorded.finish(spawn=(("work", TaskSpec("1")),))
    recorded.record()

    assert len(recorded.told()) == 1


def test_closing_again_mends_a_wrong_total(recorded: Recorded) -> None:
    recorded.batch()
    recorded.world.put("work", batches=("b",))
    recorded.finish()
    recorded.use.task_batches.close("b", 2)
    recorded.record()
    assert recorded.told() == []

    closed = recorded.use.task_batches.close("b", 1)

    assert closed.finished_at is not None
    assert len(recorded.told()) == 1
    assert recorded.use.task_batches.close("b", 1).total == 1
    with pytest.raises(BatchFinished):
        recorded.use.task_batches.close("b", 2)


def test_members_are_kept_for_an_hour_whatever_the_queue_keeps(recorded: Recorded) -> None:
    recorded.world.queue("bare", **BARE)
    recorded.batch(total=3)
    soon = recorded.clock() + timedelta(seconds=5)
    done, dead = recorded.world.put("bare", "1", "2", batches=("b",))
    (late,) = recorded.world.put("bare", batches=("b",), expires_at=soon, delay_in_seconds=1)
    first, second = recorded.world.take("bare", 2)
    recorded.world.say(first, "SUCCEEDED", result='"x"')
    recorded.world.say(second, "FAILED", retryable=False)
    recorded.clock.forward(10)
    recorded.use.reaping.run()
    ends = recorded.clock()
    recorded.record()

    kept = {id_: recorded.world.see(id_) for id_ in (done, dead, late)}

    assert [task.state for task in kept.values()] == [State.SUCCEEDED, State.DEAD, State.DEAD]
    least = timedelta(seconds=limits.MEMBER_SECONDS - 20)
    assert all(task.retained_until and task.retained_until > ends + least for task in kept.values())
    assert len(recorded.told()) == 1
    members = recorded.use.task_batches.results("b")
    results = [(task.id, task.result) for task in members]
    assert results == [(done, '"x"'), (dead, None), (late, None)]


def test_one_that_is_missing_or_has_ended_takes_no_members(recorded: Recorded) -> None:
    recorded.batch(total=0)
    entries = [TaskSpec("1", batches=("b",)), TaskSpec("2", batches=("none",)), TaskSpec("3")]

    results = recorded.use.tasks.enqueue("work", entries)

    assert [(result.outcome, result.detail) for result in results] == [
        (EnqueueOutcome.INVALID, "batches[0]: batch b has ended"),
        (EnqueueOutcome.INVALID, "batches[0]: there is no batch none"),
        (EnqueueOutcome.CREATED, None),
    ]
    task = recorded.world.one("work")
    report = recorded.world.say(task, "SUCCEEDED", spawn=(("work", TaskSpec("", batches=("b",))),))
    assert report.outcome is ReportOutcome.INVALID
    assert report.detail == "spawn[0].batches[0]: batch b has ended"


def test_an_expired_batch_is_gone_and_calls_nothing_back(recorded: Recorded) -> None:
    on = {ENDED: Callback("told", TaskSpec("1"))}
    recorded.use.task_batches.create(on, batch_id="b", total=1, expires_in_seconds=60)
    recorded.world.put("work", batches=("b",))
    recorded.clock.forward(61)
    recorded.finish()
    recorded.record()
    assert recorded.told() == []
    with pytest.raises(NotFound):
        recorded.see()


def test_what_is_seen_again_counts_once(recorded: Recorded) -> None:
    recorded.batch(total=2)
    recorded.world.put("work", "1", "2", batches=("b",))
    recorded.finish(2)
    writes = recorded.stream.taken()
    for some in (writes[:3], writes[1:], writes, writes):
        recorded.use.recording.record(SHARD, some)

    assert numbers(recorded.see()) == (2, 0, 2, 0, 0)
    assert len(recorded.told()) == 1


def stored(recorded: Recorded, id: str = "b") -> TaskBatch:
    """The batch as its record says, without what the recorder still holds."""
    record = recorded.use.task_batches.store.record("batch", id)
    assert record is not None
    return from_record(record)


def test_births_are_counted_by_the_minute_and_seen_at_once(recorded: Recorded) -> None:
    recorded.batch(total=2)
    recorded.world.put("work", "1", "2", batches=("b",))
    recorded.record()
    recorded.use.counters.post_left()
    assert numbers(stored(recorded)) == (0, 0, 0, 0, 0)
    assert numbers(recorded.see()) == (2, 2, 0, 0, 0)
    (listed,) = recorded.use.task_batches.list().shown
    assert listed == recorded.see()
    assert len(recorded.use.task_batches.results("b")) == 2

    recorded.clock.forward(60)
    recorded.use.counters.post_left()
    recorded.use.counters.post_left()

    assert numbers(stored(recorded)) == numbers(recorded.see()) == (2, 2, 0, 0, 0)


def test_ends_wait_while_others_of_the_same_log_are_live(recorded: Recorded) -> None:
    recorded.batch(ENDED, FAILED, total=60)
    for _ in range(2):
        recorded.world.put("work", *["1"] * 30, batches=("b",))
    recorded.finish(20)
    recorded.record()
    assert (stored(recorded).succeeded, recorded.see().succeeded) == (0, 20)

    recorded.finish(status="FAILED", retryable=False)  # the first death is counted immediately
    recorded.record()
    assert [task.payload for task in recorded.told()] == ['"failed"']
    while recorded.finish(25):
        recorded.record()
    assert [task.payload for task in recorded.told()] == ['"ended"']  # in the same minute
    assert numbers(stored(recorded)) == (60, 0, 59, 1, 0)


def bulk(recorded: Recorded, members: int, *events: BatchEvent) -> float:
    """Count so many members; return the write units of that, without those of their tasks."""

    def counted(tasks: int, **fields: Any) -> float:
        units = 0.0
        for _ in range(tasks // 1_000):
            for _ in range(40):
                recorded.world.put("work", *["1"] * 25, **fields)
            units += record_all(recorded)
        for _ in range(tasks // 500):
            for _ in range(20):
                recorded.finish(25)
            units += record_all(recorded)
        return units

    without = counted(1_000) * members / 1_000  # each thousand takes the same
    recorded.use.task_batches.create(
        {event: Callback("told", TaskSpec("1")) for event in events}, batch_id="b", total=members
    )
    extra = counted(members, batches=("b",)) - without
    assert numbers(recorded.see()) == (members, 0, members, 0, 0)
    assert recorded.see().finished_at is not None
    assert len(recorded.told()) == len(events)
    return extra


def record_all(recorded: Recorded) -> float:
    writes = recorded.stream.taken()
    with metered() as cost:
        for start in range(0, len(writes), 1_000):
            recorded.use.recording.record(SHARD, writes[start : start + 1_000])
    return cost.write


@pytest.mark.in_process
@pytest.mark.slow
def test_ten_thousand_members_cost_less_than_a_thousandth_each(clock: ManualClock) -> None:
    """Over a file's store, whose units are those of tables: on an engine it takes half an hour."""
    store = SqliteStore()
    assert bulk(Recorded(store, clock), 10_000, ENDED) <= 10
    store.close()


@pytest.mark.in_process
@pytest.mark.parametrize("dies", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_in_a_trickle_a_member_costs_one_write_from_the_first_on(
    recorded: Recorded, *, dies: bool
) -> None:
    ends: dict[str, Any] = {"status": "FAILED", "retryable": False} if dies else {}

    def trickle(number: int, **fields: Any) -> float:
        with metered() as counted:
            for _ in range(number):
                recorded.world.put("work", **fields)
                recorded.finish(**ends)
                recorded.record()
        return counted.write

    without = trickle(20)
    recorded.batch()

    assert trickle(20, batches=("b",)) - without <= 20
    # Names that have no room beside the numbers are moved, some thirty at once.
    assert trickle(80, batches=("b",)) - 4 * without <= 80 + (6 if dies else 3)
    assert trickle(20, batches=("b",)) - without <= 20
    members = recorded.use.task_batches.results("b")
    assert len(members) == len({task.id for task in members}) == RESULTS
    assert [task.created_at for task in members] == sorted(task.created_at for task in members)
    assert len(recorded.see().dead_ids) == (DEAD_IDS if dies else 0)


def test_members_of_a_deleted_batch_are_none_of_another_of_its_id(recorded: Recorded) -> None:
    first = recorded.batch()
    old = recorded.world.put("work", "1", "2", batches=("b",))
    recorded.use.task_batches.delete("b")
    recorded.clock.forward(1)
    second = recorded.batch(ENDED, SUCCEEDED)
    assert (first.id, first.key == second.key) == (second.id, False)

    recorded.finish(2)
    recorded.record()
    [new] = recorded.world.put("work", "3", batches=("b",))
    recorded.use.task_batches.close("b", 1)
    recorded.record()

    assert numbers(recorded.see()) == (1, 1, 0, 0, 0)
    assert recorded.told() == []
    recorded.finish()
    recorded.record()
    assert numbers(recorded.see()) == (1, 0, 1, 0, 0)
    assert len(recorded.told()) == 2
    assert [task.id for task in recorded.use.task_batches.results("b")] == [new]
    assert {recorded.world.see(task_id).batch_ids for task_id in (*old, new)} == {("b",)}


def test_a_callback_whose_id_another_task_holds_is_made_under_another_id(
    recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    batch = recorded.batch(ENDED, total=1)
    usual = recorded.use.batch_writes.callback_id(batch, ENDED)
    recorded.world.queue("other")
    recorded.world.put("other", id=usual)
    recorded.world.say(recorded.world.one("other"), "SUCCEEDED")
    recorded.world.put("work", batches=("b",))

    recorded.finish()
    recorded.record()

    (told,) = recorded.told()
    fired = recorded.see().fired[ENDED]
    assert told.id == fired.task_id != usual
    assert told.batch == BatchEnd("b", 1, 1, 0, 0)
    assert f"has the id {usual} of the callback ended of batch b" in caplog.text


@pytest.mark.parametrize(
    "parts",
    [(11, 78, 11), (24, 24, 24, 28)],
)
def test_a_hundred_members_have_a_hundred_results_however_they_come(
    recorded: Recorded, parts: tuple[int, ...]
) -> None:
    """The names of members that were counted early and late are kept in two places."""
    recorded.batch(total=100)
    for part in parts:
        for start in range(0, part, 25):
            recorded.world.put("work", *["1"] * min(25, part - start), batches=("b",))
        recorded.finish(1)
        recorded.record()
        recorded.clock.forward(60)  # by the minute what was counted is posted
        recorded.use.counters.post_left()
    while recorded.finish(25):
        recorded.record()

    assert numbers(recorded.see()) == (100, 0, 100, 0, 0)
    assert len(recorded.use.task_batches.results("b")) == 100
    assert [task.payload for task in recorded.told()] == ['"ended"']


def test_a_batch_is_created_once(recorded: Recorded) -> None:
    batch = recorded.batch()

    again = recorded.batch()

    assert again == batch
    with pytest.raises(BatchExists):
        recorded.batch(total=5)
    with pytest.raises(InvalidRequest, match=r"on\.ended\.queue"):
        recorded.use.task_batches.create({ENDED: Callback("nowhere", TaskSpec("1"))})
    with pytest.raises(InvalidRequest, match=r"on\.ended\.batches\[0\]"):
        recorded.use.task_batches.create({ENDED: Callback("told", TaskSpec("1", batches=("no",)))})


def test_a_callback_that_its_queue_would_not_take_is_refused(recorded: Recorded) -> None:
    recorded.world.queue("strict", groups=GroupSettings(GroupMode.STRICT))
    for queue, new, field in (
        ("told", TaskSpec("1", priority=Priority.HIGH), "priority"),
        ("strict", TaskSpec("1"), "group_key"),
        ("strict", TaskSpec("1", group_key="a"), "queue"),
    ):
        with pytest.raises(InvalidRequest, match=rf"on\.ended\.{field}"):
            recorded.use.task_batches.create({ENDED: Callback(queue, new)})


def test_what_is_said_of_a_batch_that_is_not_there_is_refused(recorded: Recorded) -> None:
    batches = recorded.use.task_batches
    for call in (
        lambda: batches.close("b", 1),
        lambda: batches.get("no batch's id"),
        lambda: batches.delete("b"),
        lambda: recorded.use.batch_writes.recount("b", FoundMembers(), recorded.clock()),
    ):
        with pytest.raises(NotFound):
            call()


def test_a_batch_made_by_two_at_once_is_one(recorded: Recorded) -> None:
    """The one is told of the other's, or that another is being made."""
    on = {ENDED: Callback("told", TaskSpec('"ended"'))}
    first = hooked(recorded.world, before_put_record=recorded.batch)
    with pytest.raises(Unavailable, match="another call creates this batch"):
        first.use.task_batches.create(on, batch_id="b")
    bare = hooked(
        recorded.world, before_put_record=lambda: recorded.use.task_batches.create({}, batch_id="c")
    )
    assert not bare.use.task_batches.create({}, batch_id="c").new
    with pytest.raises(BatchExists, match="was created otherwise"):
        recorded.use.task_batches.create({}, batch_id="c", total=1)


def test_a_batch_that_too_many_change_at_once_is_unavailable(recorded: Recorded) -> None:
    recorded.batch()
    totals = iter(range(1, 1000))
    other = overtaken(
        recorded.world,
        "put_record",
        lambda: recorded.use.task_batches.close("b", next(totals)),
    )
    with pytest.raises(Unavailable, match="too many others count this batch at once"):
        other.use.task_batches.close("b", 5000)


def test_nobody_joins_a_batch_that_was_cancelled(recorded: Recorded) -> None:
    recorded.batch()
    while recorded.use.batch_cancelling.step("b").cursor:
        pass
    recorded.world.put("work", "1")
    (result,) = recorded.use.tasks.enqueue("work", [TaskSpec("1", batches=("b",))])
    assert result.outcome is EnqueueOutcome.INVALID
    assert "batch b was cancelled" in str(result.detail)
    (task,) = recorded.world.take("work")
    spawn = (("work", TaskSpec("2", batches=("b",))),)
    refused = recorded.world.say(task, "SUCCEEDED", spawn=spawn)
    assert "spawn[0].batches[0]: batch b was cancelled" in str(refused.detail)


def test_a_callback_whose_queue_is_deleted_is_told_to_nobody(recorded: Recorded) -> None:
    recorded.batch(total=1)
    recorded.world.put("work", batches=("b",))
    recorded.use.queues.delete("told")
    recorded.clock.forward(60)
    recorded.finish()
    recorded.record()

    assert recorded.see().fired[ENDED].task_id is None


def test_a_restart_takes_a_dead_member_from_names_that_are_kept_apart(recorded: Recorded) -> None:
    recorded.batch(total=RESULTS + 50)
    ids = []
    for _ in range((RESULTS + 50) // 25):
        ids += recorded.world.put("work", *["1"] * 25, batches=("b",))
        recorded.finish(25, "FAILED", retryable=False)
    recorded.record()
    dead = recorded.see().dead_ids
    recorded.use.bulk.by_ids("work", BulkAction.RESTART, dead[:2])
    recorded.record()

    assert recorded.see().dead_ids[: len(dead) - 2] == dead[2:]
    recorded.use.task_batches.delete("b")
    with pytest.raises(NotFound):
        recorded.see()


def test_a_batch_is_cancelled_with_its_parts_and_no_other(recorded: Recorded) -> None:
    recorded.batch()
    part = {ENDED: Callback("told", TaskSpec('"part"', batches=("b",)))}
    recorded.use.task_batches.create(part, batch_id="b-1")
    recorded.batch(id="b-own")
    ids = [
        recorded.world.put("work", f'"{batch}"', batches=(batch,))[0]
        for batch in ("b", "b-1", "b-own")
    ]
    cancelling = recorded.use.batch_cancelling
    step = cancelling.step("b")
    while step.cursor:
        step = cancelling.step("b", step.cursor)

    assert [recorded.world.see(one).cancelled for one in ids] == [True, True, False]
    assert recorded.see("b-1").stopped
    assert not recorded.see("b-own").stopped


def test_a_queue_that_is_deleted_while_a_batch_is_cancelled_is_passed_by(
    recorded: Recorded,
) -> None:
    recorded.batch()
    recorded.world.queue("also")
    for _ in range(3):
        recorded.world.put("also", *["1"] * 25, batches=("b",))
    (last,) = recorded.world.put("work", batches=("b",))
    cancelling = recorded.use.batch_cancelling
    cancelling.patience = -1
    step = cancelling.step("b")
    recorded.use.queues.delete("also")
    recorded.clock.forward(60)
    while step.cursor:
        step = cancelling.step("b", step.cursor)

    assert recorded.world.see(last).cancelled


def test_a_workflow_with_steps_that_the_caller_may_not_know_of_is_not_cancelled(
    recorded: Recorded,
) -> None:
    recorded.world.queue("secret")
    recorded.batch()
    hidden = {ENDED: Callback("secret", TaskSpec('"part"', batches=("b",)))}
    recorded.use.task_batches.create(hidden, batch_id="b-1")
    (member,) = recorded.world.put("work", batches=("b",))

    of_work = Principal("key_1", "ada", Role.OPERATOR, ("work",))
    with acting(of_work), pytest.raises(Forbidden):
        recorded.use.batch_cancelling.step("b")
    assert not recorded.world.see(member).cancelled


def test_names_of_the_dead_that_fill_a_record_are_kept_apart_until_they_are_restarted(
    recorded: Recorded,
) -> None:
    recorded.batch(total=200)
    for start in range(0, 200, 25):
        for number in range(start, start + 25):
            name = f"member-{number:03}-{'x' * 40}"
            recorded.world.put("work", id=name, batches=("b",))
        recorded.finish(25, "FAILED", retryable=False)
        recorded.record()
    dead = recorded.see().dead_ids
    recorded.use.bulk.by_ids("work", BulkAction.RESTART, dead[:2])
    recorded.record()

    assert not set(recorded.see().dead_ids) & set(dead[:2])
    assert set(recorded.see().dead_ids) >= set(dead[2:])


def test_names_of_members_are_kept_once_though_others_are_quicker(recorded: Recorded) -> None:
    """Another takes the record of the first members, and the recorder looks at it again."""
    batch = recorded.batch(total=50)
    ids = recorded.world.put("work", *["1"] * 2, batches=("b",))
    other = new_world(recorded.stream.store, recorded.clock)
    late = hooked(
        recorded.world, before_put_record=lambda: other.use.batch_writes.remember(batch.key, ids)
    )
    late.use.batch_writes.remember(batch.key, ids)

    assert [task.id for task in recorded.use.task_batches.results("b")] == list(ids)
    keep = overtaken(
        recorded.world,
        "put_record",
        lambda: other.use.batch_writes.remember(
            batch.key, recorded.world.put("work", batches=("b",))
        ),
    )
    more = recorded.world.put("work", "2", batches=("b",))
    with pytest.raises(Unavailable, match="too many others count this batch at once"):
        keep.use.batch_writes.remember(batch.key, more)


def test_a_batch_waits_for_dozens_of_children_of_a_member(recorded: Recorded) -> None:
    recorded.batch(total=1)
    recorded.world.put("work", batches=("b",))
    child, keyed = TaskSpec("1", batches=("b",)), TaskSpec("2", batches=("b",), dedupe_key="k")
    spawn = (*[("work", child)] * 60, ("work", keyed), ("work", keyed))

    recorded.finish(spawn=spawn)
    recorded.record()
    assert (recorded.see().finished_at, recorded.see().live) == (None, 61)
    for _ in range(3):
        recorded.finish(25)
    recorded.record()

    assert recorded.see().finished_at is not None


def test_children_that_cannot_be_created_later_are_limited(recorded: Recorded) -> None:
    recorded.batch()
    recorded.world.put("work", batches=("b",))
    task = recorded.world.one("work")
    spawn = [("work", TaskSpec("1", batches=("b",), dedupe_key=str(n))) for n in range(25)]

    result = recorded.world.say(task, "SUCCEEDED", spawn=tuple(spawn))

    assert result.outcome is ReportOutcome.INVALID
    assert "at most 24" in str(result.detail)
    assert recorded.world.see(task.id).state is State.INFLIGHT
