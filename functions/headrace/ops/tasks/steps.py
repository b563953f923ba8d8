"""The steps of a workflow: the ones that run or have run, and the ones that wait.

A workflow is a batch, the *whole*, with other batches in it, its *parts*: each part makes one step
when its members have ended.  So the callbacks show which step waits for which.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from headrace.domain.batch import RESULTS, BatchEvent, Callback, TaskBatch
from headrace.domain.task import Membership, Task
from headrace.domain.workflow import STEP_TAG, part_id, root_id
from headrace.ops.tasks.batches import BatchOperations
from headrace.store.call_scope import visible
from headrace.store.records import batches as batch_records

PARTS: Final = 250
"""How many parts of a workflow are looked at."""

MAKES: Final = (BatchEvent.ENDED, BatchEvent.SUCCEEDED)
"""The events for which a part makes a step."""


@dataclass(frozen=True, slots=True)
class BatchStep:
    """A member of a batch, created or planned.

    ``task_id`` is the id of the present or future task, ``payload`` that of a step to come.
    ``task`` is None before it is created and after it was dropped.  The step waits for the steps
    ``after``; ``part`` counts their ends, and is None if ``after`` is empty.
    """

    task_id: str
    name: str
    queue: str
    batches: tuple[str, ...]
    task: Task | None
    part: TaskBatch | None = None
    after: tuple[str, ...] = ()
    payload: str | None = None

    @property
    def made(self) -> bool:
        """Whether its turn has come."""
        return self.task is not None or self.part is None or self._fired is not None

    @property
    def stopped(self) -> bool:
        """Whether its turn will not come: the workflow was cancelled before."""
        return not self.made and self.part is not None and self.part.stopped

    @property
    def _fired(self) -> object:
        fired = {} if self.part is None else self.part.fired
        return next((one for one in fired.values() if one.task_id == self.task_id), None)


@dataclass(frozen=True, slots=True)
class BatchSteps:
    """The steps of a batch; ``left_out`` is the number of its other members.

    ``more_wait`` is whether it has more than ``PARTS`` parts, so that some waiting steps are
    missing.
    """

    steps: tuple[BatchStep, ...]
    left_out: int
    more_wait: bool = False


def parts_of(batches: BatchOperations, whole: TaskBatch) -> Iterator[TaskBatch]:
    """Yield the parts of a batch, by id, if the caller may see them."""
    known, cursor = {whole.id}, None
    while True:
        page = batches.list(prefix=part_id(whole.id, ""), limit=PARTS, cursor=cursor)
        for one in page.shown:
            if one.part_of in known:  # ids of what stands within a part are behind its own
                known.add(one.id)
                yield one
        cursor = page.cursor
        if cursor is None:
            return


def callbacks_of(
    batches: BatchOperations, part: TaskBatch
) -> Iterator[tuple[str, BatchEvent, Callback]]:
    """Yield the steps that a part makes or has made: task id, event and callback."""
    for event in MAKES:
        if event not in part.on:
            continue
        name = batch_records.callback_name(part, event)
        record = batches.store.record(batch_records.CALLBACKS, name)
        if record is not None:
            yield (
                batches.service.batch_writes.callback_id(part, event),
                event,
                batch_records.callback_of(record),
            )


def steps_of(batches: BatchOperations, whole: TaskBatch, *, details: bool = False) -> BatchSteps:
    """Return the first hundred members of a batch, and the steps of its parts.

    The steps that the caller may not see are left out.  With *details* they have payloads, and all
    members are included that the batch names as dead.
    """
    steps = {task.id: _step(task) for task in batches.results(whole.id, payload=details)}
    parts, members, waiting = list(islice(parts_of(batches, whole), PARTS + 1)), len(steps), 0
    for part in parts[:PARTS]:
        for task_id, _, callback in callbacks_of(batches, part):
            new = callback.new
            joined = tuple(Membership(one).batch_id for one in new.batches)
            waiting += whole.id in joined
            name = new.tags.get(STEP_TAG, "")
            text = new.payload if details else None
            step = BatchStep(task_id, name, callback.queue, joined, None, payload=text)
            if visible(callback.queue):
                steps[task_id] = replace(steps.get(task_id, step), part=part)
    late = [step.task_id for step in steps.values() if step.task is None and step.made]
    roots = 0 if whole.created == whole.total else (whole.total or 0) - waiting
    first = [root_id(whole.id, place) for place in range(min(roots, RESULTS - members))]
    dead = whole.dead_ids if details else ()
    late += [one for one in (*first, *dead) if one not in steps]
    # A birth is counted within a minute.
    read, now = batches.store.read(dict.fromkeys(late), payload=details), batches.now()
    for task in read.values():
        if whole.key in task.batch_keys and visible(task.queue) and not task.is_hidden(now):
            known = steps.get(task.id)
            steps[task.id] = _step(task, None if known is None else known.part)
    left_out = whole.created - sum(step.made for step in steps.values())
    linked = sorted(_linked(steps, whole.id), key=_order)
    return BatchSteps(tuple(linked), max(0, left_out), len(parts) > PARTS)


def _order(step: BatchStep) -> tuple[bool, float, list[tuple[int, str]]]:
    """Return the sort key of steps: by creation; waiting steps by name, with 2 before 10."""
    parts = re.split(r"(\d+)", step.name)
    name = [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
    made_at = 0.0 if step.task is None else step.task.created_at.timestamp()
    return step.task is None, made_at, name


def _step(task: Task, part: TaskBatch | None = None) -> BatchStep:
    name = task.tags.get(STEP_TAG, "")
    return BatchStep(task.id, name, task.queue, task.batch_ids, task, part)


def _linked(steps: Mapping[str, BatchStep], whole: str) -> Iterator[BatchStep]:
    """Yield the steps of *whole* with the steps that each waits for.

    An entry that is not a step is replaced by the steps that it waits for.
    """
    members: dict[str, list[BatchStep]] = {}
    for step in steps.values():
        for batch in step.batches:
            members.setdefault(batch, []).append(step)

    def before(step: BatchStep, seen: frozenset[str]) -> Iterator[str]:
        for one in members.get(step.part.id, ()) if step.part is not None else ():
            if one.task_id in seen:
                continue
            if whole in one.batches:
                yield one.task_id
            else:
                yield from before(one, seen | {one.task_id})

    for step in steps.values():
        if whole in step.batches:
            after = before(step, frozenset({step.task_id}))
            yield replace(step, after=tuple(dict.fromkeys(after)))
