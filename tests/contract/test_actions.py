"""Actions on many tasks that the service carries out: steered, listed, told of in the audit."""

from dataclasses import replace
from typing import Any

import pytest

from headrace.domain.errors import Conflict, Unavailable
from headrace.domain.filters import NewerRecord, TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.task import State
from headrace.ops.shared.audit import AuditFilter
from headrace.ops.shared.sentences import sentence
from headrace.store.call_scope import Caller, calling
from headrace.store.records.actions import SNAPSHOTS, Action
from tests.contract.conftest import World, dies, hooked
from tests.contract.test_selections import kill, look

WAITING = TaskFilter(states=("ENQUEUED",))
PART = 10


@pytest.fixture(autouse=True)
def _small_parts(world: World) -> None:
    """Let a worker do a few tasks at a time: what is about parts needs few tasks then."""
    world.use.action_work.part = PART


def waiting(world: World, count: int) -> str:
    queue = world.queue()
    for start in range(0, count, 25):
        world.put(queue, *["{}"] * min(25, count - start))
    world.clock.forward(1)
    return queue


def begin(world: World, queue: str, action: BulkAction, where: TaskFilter, **more: Any) -> Action:
    return world.use.actions.begin_all(action, [queue], where, **more)


def a_part(world: World, run: Action) -> Action:
    """Have a worker do one part of an action, and no more."""
    world.use.action_work.resume(run.mark(), time_left=lambda: 0.0)
    return world.use.actions.get(run.id)


@pytest.mark.gate
def test_the_service_looks_for_the_tasks_and_acts_on_them(world: World) -> None:
    queue = waiting(world, 2 * PART)
    run = begin(world, queue, BulkAction.CANCEL, WAITING, reason="sent by mistake")
    assert (run.status, run.total) == ("LOOKING", None)
    world.clock.forward(0.001)
    later = world.put(queue)[0]
    world.use.action_work.run()

    done = world.use.actions.get(run.id)
    assert (done.status, done.total, done.changed) == ("DONE", 2 * PART, 2 * PART)
    assert world.see(later).state is State.ENQUEUED
    assert not world.use.actions.any_unfinished()


def test_the_audit_has_one_row_that_says_it_in_a_sentence(world: World) -> None:
    queue = world.queue()
    changed, *_ = kill(world, queue, 3)
    found = look(world, queue)
    world.use.bulk.by_ids(queue, BulkAction.DELETE, [changed])
    with calling(Caller("anna", "req-1", "key_1")):
        run = world.use.actions.confirm(found, reason=" fixed the SMTP password ")
    [begun] = world.use.audit.list(AuditFilter(action="restart")).shown
    assert (begun.changed, begun.matched) == (None, None)
    assert sentence(begun) == "anna is restarting tasks of mail: fixed the SMTP password"
    world.use.action_work.run()

    [entry] = world.use.audit.list(AuditFilter(action="restart")).shown
    assert (entry.actor, entry.actor_id, entry.request_id) == ("anna", "key_1", "req-1")
    assert (entry.matched, entry.changed, entry.run) == (3, 2, run.id)
    told = "anna restarted 2 dead tasks of mail, 1 no longer existed: fixed the SMTP password"
    assert sentence(entry) == told


def test_it_is_paused_and_resumed_and_nothing_else_meanwhile(world: World) -> None:
    queue = waiting(world, 2 * PART)
    run = begin(world, queue, BulkAction.DELETE, WAITING)
    while (run := a_part(world, run)).changed == 0:
        pass
    world.use.actions.pause(run.id)
    world.use.action_work.run()
    world.clock.forward(3600)
    world.use.action_work.run()

    rests = world.use.actions.get(run.id)
    assert (rests.status, rests.changed) == ("PAUSED", PART)
    assert world.use.actions.pause(run.id) == rests
    assert world.use.actions.resume(run.id).status == "RUNNING"
    world.use.action_work.run()
    assert world.use.actions.get(run.id).changed == 2 * PART
    for turn in (world.use.actions.pause, world.use.actions.resume, world.use.actions.cancel):
        with pytest.raises(Conflict):
            turn(run.id)


def test_a_cancelled_action_skips_the_rest_and_may_be_cancelled_again(world: World) -> None:
    queue = waiting(world, 2 * PART)
    run = begin(world, queue, BulkAction.DELETE, WAITING)
    while (run := a_part(world, run)).changed == 0:
        pass
    world.use.actions.cancel(run.id)
    assert world.use.actions.cancel(run.id).status == "CANCELLED"
    world.use.action_work.run()

    over = world.use.actions.get(run.id)
    assert (over.has_ended, over.changed, over.at) == (True, PART, PART)
    [entry] = world.use.audit.list(AuditFilter(action="delete")).shown
    told = "service deleted 10 enqueued tasks of mail, cancelled with 10 not touched"
    assert sentence(entry) == told


def test_an_undo_ends_the_deletion_and_brings_back_what_it_took(world: World) -> None:
    queue = waiting(world, 2 * PART)
    run = begin(world, queue, BulkAction.DELETE, WAITING, undo_in_seconds=600)
    while (run := a_part(world, run)).changed == 0:
        pass
    [undo] = run.undos.values()
    world.clock.forward(1)
    answer = world.use.undos.undo(undo)
    world.use.action_work.run()

    assert answer.changed == PART
    assert world.use.actions.get(run.id).status == "CANCELLED"
    assert world.use.inspect.count(queue).count == 2 * PART


def test_an_action_of_a_newer_version_waits_and_holds_up_no_other(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A filter field that this version does not know would have made it take more tasks."""
    queue = waiting(world, 1)
    other = world.queue("other")
    world.put(other)
    world.clock.forward(1)
    newer = begin(world, queue, BulkAction.DELETE, WAITING)
    usual = begin(world, other, BulkAction.DELETE, WAITING)
    record = world.store.record("action", newer.id)
    assert record is not None
    body = {**record.body, "where": {**record.body["where"], "note": "x"}}
    changed = replace(record, body=body, version=record.version + 1)
    assert world.store.put_record(changed, replaces=record.version)

    world.use.action_work.run()

    assert world.use.actions.get(usual.id).changed == 1
    assert world.use.inspect.count(queue, TaskFilter()).count == 1
    assert "newer version" in caplog.text
    with pytest.raises(NewerRecord, match=r"where\.note"):
        world.use.actions.get(newer.id)


def test_an_action_that_was_cut_off_before_it_was_written_leaves_no_mark(world: World) -> None:
    run = begin(world, waiting(world, 1), BulkAction.DELETE, WAITING)
    world.store.drop_record("action", run.id)
    world.use.action_work.run()
    assert world.use.actions.any_unfinished()

    world.clock.forward(24 * 3600)
    world.use.action_work.run()
    assert not world.use.actions.any_unfinished()


def test_an_action_whose_selection_expired_fails(world: World) -> None:
    queue = waiting(world, 2)
    run = begin(world, queue, BulkAction.DELETE, WAITING)
    while (run := a_part(world, run)).status == "LOOKING":
        pass
    world.store.drop_record(SNAPSHOTS, run.chunk_name(0))
    world.use.action_work.run()

    over = world.use.actions.get(run.id)
    assert (over.status, over.has_ended) == ("FAILED", True)
    assert over.trouble == "the selected tasks are no longer kept; make the selection again"
    assert world.use.inspect.count(queue).count == 2
    [entry] = world.use.audit.list(AuditFilter(action="delete")).shown
    assert f"failed ({over.trouble})" in str(sentence(entry))


def cut_off_in_a_part(world: World, run: Action) -> None:
    """Have a worker die once its first part is acted on, before that is written down."""
    while (run := a_part(world, run)).status == "LOOKING":
        pass
    worker = hooked(world, after_commit=dies)
    worker.use.action_work.part = PART
    with pytest.raises(Unavailable):
        worker.use.action_work.resume(run.mark(), time_left=lambda: 0.0)


def test_what_a_worker_had_done_when_it_died_is_counted_of_a_cancelled_action(
    world: World,
) -> None:
    queue = waiting(world, 2 * PART)
    run = begin(world, queue, BulkAction.CANCEL, WAITING)
    cut_off_in_a_part(world, run)
    world.use.actions.cancel(run.id)
    world.clock.forward(3600)
    world.use.action_work.run()

    over = world.use.actions.get(run.id)
    assert (over.status, over.has_ended) == ("CANCELLED", True)
    assert over.changed == PART
    assert world.use.inspect.count(queue, WAITING).count == PART


def test_a_part_that_can_no_longer_be_undone_fails_and_what_was_done_is_counted(
    world: World,
) -> None:
    queue = waiting(world, 2 * PART)
    run = begin(world, queue, BulkAction.DELETE, WAITING, undo_in_seconds=60)
    cut_off_in_a_part(world, run)
    world.clock.forward(3600)
    world.use.action_work.run()

    over = world.use.actions.get(run.id)
    assert (over.status, over.has_ended) == ("FAILED", True)
    assert over.trouble == "the time in which it could be undone is over"


def test_a_confirmation_sent_twice_starts_one_action(world: World) -> None:
    queue = world.queue()
    kill(world, queue, 3)
    found = look(world, queue)
    begun = world.use.actions.confirm(found)
    for shown in (found, begun):
        with pytest.raises(Conflict, match="the action has progressed since"):
            world.use.actions.confirm(shown)


def test_actions_are_listed_page_by_page(world: World) -> None:
    queue = waiting(world, 1)
    begun = set()
    for _ in range(3):
        begun.add(begin(world, queue, BulkAction.DELETE, WAITING).id)
        world.clock.forward(1)
    first = world.use.actions.list(limit=2)
    rest = world.use.actions.list(limit=2, cursor=first.cursor)
    assert (len(first.shown), len(rest.shown), rest.cursor) == (2, 1, None)
    assert {one.id for one in (*first.shown, *rest.shown)} == begun
