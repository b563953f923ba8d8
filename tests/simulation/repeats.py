"""Checks of calls that are repeated: nothing is made twice, and no lease is lost."""

import math
from collections.abc import Iterator
from typing import TypeGuard

from headrace.domain.ids import group_of
from headrace.domain.task import State, Task
from headrace.domain.transitions import TaskWrite, last_spot_of
from tests.simulation.checks import check, seconds
from tests.simulation.facts import Facts
from tests.simulation.scenario import Scenario
from tests.simulation.world import World


@check
def no_task_is_made_twice(world: World, played: Scenario, _facts: Facts) -> Iterator[str]:
    """An id that the service has made stands for one task, unless somebody has removed that."""
    operators = {"delete", "delete_task", "purge", "delete_queue", "action"}
    removes = any(op.name in operators for actor in played.actors for op in actor.ops)
    last: dict[str, TaskWrite] = {}
    for write in world.log:
        side = write.after or write.before
        assert side is not None
        before = last.get(side.id)
        last[side.id] = write
        if before is None or write.after is None or write.after.last_move != "enqueue":
            continue
        done = not removes if before.after is None else last_spot_of(before.after) is not None
        if side.id.startswith("tsk_") and done and not before.forgotten:
            yield f"{side.id} was made again after it was done"


def _is_leased(task: Task | None) -> TypeGuard[Task]:
    """Tell whether a task has a lease of its own: of a lease group the index may know late."""
    if task is None or task.is_tombstone or task.state is not State.INFLIGHT:
        return False
    return group_of(task.lease_id) is None


@check
def a_repeated_dequeue_answers_with_all_that_was_leased(
    world: World, _played: Scenario, facts: Facts
) -> Iterator[str]:
    """What a call leases in any of its tries is in its answer, while the lease lasts."""
    calls = [one for one in facts.dequeued if one.ended is not None]
    leases: dict[str, tuple[str | None, float, float, float]] = {}
    found: list[tuple[str, str | None, float, float, float]] = []
    for write in world.log:
        side = write.after or write.before
        assert side is not None
        lease = leases.pop(side.id, None)
        if lease is not None:
            worker, since, until, _ = lease
            found.append((side.id, worker, since, until, seconds(write.recorded_at)))
        task = write.after
        if _is_leased(task):
            until = seconds(task.lease_expires_at)
            leases[side.id] = task.worker, seconds(task.started_at), until, until
    found += [(id_, *lease) for id_, lease in leases.items()]
    for call in calls:
        end = call.ended or 0.0
        for id_, worker, since, until, over in found:
            held = worker == call.worker and call.began < since and end < min(until, over)
            if held and since < end and id_ not in call.ids:
                yield f"{id_} was leased to {worker} at {since:.3f}, and is not in the answer"


@check
def nothing_is_leased_for_a_call_that_was_answered(
    world: World, _played: Scenario, facts: Facts
) -> Iterator[str]:
    """A try that its caller has given up leases nothing after a repeat was answered."""
    times: dict[str, list[tuple[float, float]]] = {}
    for call in facts.dequeued:
        end = math.inf if call.ended is None else call.ended
        times.setdefault(call.worker, []).append((call.began, end))
    for write in world.log:
        task = write.after
        if not _is_leased(task) or task.last_move != "dequeue" or task.worker not in times:
            continue
        at = seconds(write.recorded_at)
        if not any(began <= at <= end + 0.001 for began, end in times[task.worker]):
            yield f"{task.id} was leased to {task.worker} at {at:.3f}, after the call was answered"
