"""Ids of tasks of which at most one is made in a window of time."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.errors import Unavailable
from headrace.domain.plan import TaskSpec
from headrace.domain.task import Task
from headrace.domain.times import EPOCH
from headrace.ops.shared.stack_secret import DerivedIds
from headrace.store.base import Store

_LOOKS: Final = 5  # at ids that other tasks hold

_log: Final = logging.getLogger(__name__)


def with_unique_ids(
    store: Store, ids: DerivedIds, wanted: Sequence[tuple[str, TaskSpec]], now: datetime
) -> list[TaskSpec]:
    """Return the tasks *wanted* in their queues, those with ``unique_for`` with their ids.

    The id is derived from the queue, the dedupe key and the window in which the task is due, so
    the same id is found for every task of that window.  If a task that was never in the queue holds
    the id, another id is derived.
    """
    specs = [new for _, new in wanted]
    open_places = [place for place, new in enumerate(specs) if new.unique_for is not None]
    for number in range(_LOOKS):
        if not open_places:
            return specs
        for place in open_places:
            queue, new = wanted[place]
            specs[place] = replace(new, id=_id_of(ids, queue, new, now, number))
        names = [str(specs[place].id) for place in open_places]
        found = {**store.read(names, payload=False), **store.spent(names)}
        open_places = [
            place
            for place in open_places
            if (there := found.get(str(specs[place].id))) is not None
            and there.has_id(now)
            and _is_foreign(there, wanted[place][0])
        ]
    raise Unavailable("the ids of unique tasks keep being taken; try again")


def _id_of(ids: DerivedIds, queue: str, new: TaskSpec, now: datetime, number: int) -> str:
    due = new.scheduled_at or now + timedelta(seconds=new.delay_in_seconds or 0)
    seconds = new.unique_for or 1
    start = due - (due - EPOCH) % timedelta(seconds=seconds)
    window = (start - EPOCH) / timedelta(seconds=1)
    return ids.task_id(start, "unique", queue, new.dedupe_key or "", seconds, window, number)


def _is_foreign(there: Task, queue: str) -> bool:
    if there.queue == queue or any(hop.queue == queue for hop in there.trail):
        return False
    _log.error(
        "Task %s in queue %s has the id of a unique task of queue %s."
        " That task is enqueued under another id.",
        there.id,
        there.queue,
        queue,
    )
    return True
