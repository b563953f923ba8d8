"""A store whose costs tell nobody of tasks that they may not know of.

Whoever names a task by its id pays for what is there, be it a task of another queue: the units
would tell that it is there and how large it is.  So where a call of somebody who may not know of
all queues meets a task that is not there for them, its cost is worked out from what they may know:
such a task costs what none costs.  Without one, and for everybody else, it is what was measured.
"""

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Any, Final, cast

from headrace.domain.change import Change
from headrace.domain.task import Task
from headrace.store.base import Done, Noting, NotingRefused, Outcome, Refused, Store
from headrace.store.call_scope import charge, metered, restricted, visible
from headrace.store.items import Value, to_item

_WRITE_BYTES: Final = 1024
_READ_BYTES: Final = 4096


def discreet(store: Store) -> Store:
    """Return *store*, with the costs of tasks that are not to be known left out."""
    return cast("Store", _Discreet(store))


class _Discreet:
    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever else a store has
        return getattr(self._store, name)

    def commit(
        self,
        changes: Sequence[Change],
        *,
        partly: bool = False,
        noting: Noting | None = None,
    ) -> list[Outcome]:
        if not restricted():
            return self._store.commit(changes, partly=partly, noting=noting)
        # By itself: what it costs tells of no task.
        if noting and not self._store.put_record(noting.record, replaces=noting.replaces):
            raise NotingRefused
        with metered() as cost:
            outcomes = self._store.commit(changes, partly=partly)
        if all(outcome.task is not None and visible(outcome.task.queue) for outcome in outcomes):
            charge(write=cost.write, read=cost.read)
        else:
            for change, outcome in zip(changes, outcomes, strict=True):
                charge(write=_written(change, outcome), read=_read_back(outcome))
        return outcomes

    def read(
        self, task_ids: Iterable[str], *, payload: bool = True, consistent: bool = True
    ) -> dict[str, Task]:
        if not restricted():
            return self._store.read(task_ids, payload=payload, consistent=consistent)
        wanted = list(dict.fromkeys(task_ids))
        with metered() as cost:
            found = self._store.read(wanted, payload=payload, consistent=consistent)
        seen = [task for task in found.values() if visible(task.queue)]
        if len(seen) == len(wanted):
            charge(read=cost.read)
        else:
            units = len(wanted) - len(seen) + sum(_units(task, _READ_BYTES) for task in seen)
            charge(read=units if consistent else units / 2)
        return found


def _written(change: Change, outcome: Outcome) -> float:
    """Return the write units of a change: the item, and its entries of the index."""
    twice = 2 if change.also else 1
    if isinstance(outcome, Refused) or not visible(outcome.task.queue):
        return twice * (1 + len(change.also))
    entries = 2 if "place" in change.put else int(change.insert is not None or change.gone)
    return twice * (_units(outcome.task, _WRITE_BYTES) + entries + len(change.also))


def _read_back(outcome: Outcome) -> float:
    """Return the read units of looking at what refused a change."""
    if isinstance(outcome, Done):
        return 0
    known = outcome.task is not None and visible(outcome.task.queue)
    return _units(outcome.task, _READ_BYTES) if known and outcome.task else 1


def _units(task: Task, step: int) -> int:
    size = sum(len(name) + _bytes(value) for name, value in to_item(task).items())
    return max(1, ceil(size / step))


def _bytes(value: Value) -> int:
    """Return about how many bytes DynamoDB counts for *value*."""
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode("utf-8", "surrogatepass"))
        case "M":
            return 3 + sum(len(name.encode()) + 1 + _bytes(part) for name, part in content.items())
        case "L":
            return 3 + sum(1 + _bytes(part) for part in content)
        case _:
            return len(content) // 2 + 1
