"""Commits of changes of tasks, with their effects on what this process knows."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec import structs

from headrace.domain import plan
from headrace.domain.change import Change, Done, Entry, KeyLock, Outcome, Refused
from headrace.domain.task import State, Task
from headrace.ops.shared.strict_order import note_unmade

_LOOKS: Final = 10  # at a dedupe key that changes hands while we look

if TYPE_CHECKING:
    from headrace.runtime.service import Service
    from headrace.store.base import Store


class OvertakenError(Exception):
    """Another process has moved a key lock; look again."""


def commit(service: "Service", changes: Sequence[Change]) -> list[Outcome]:
    """Commit *changes*; if a task has lost a key lock that its change releases, leave the lock out.

    A task that waited past its expiry may have lost its dedupe key to a newer one.  The places in
    strict orders of changes that failed are noted as empty.
    """
    outcomes = commit_exactly(service, changes)
    for place, (change, outcome) in enumerate(zip(changes, outcomes, strict=True)):
        if isinstance(outcome, Done) or not outcome.blocked:
            continue
        lost = [change.also[blocked] for blocked in outcome.blocked]
        if all(isinstance(also, KeyLock) and also.value is None for also in lost):
            kept = tuple(also for also in change.also if also not in lost)
            outcomes[place] = commit_exactly(service, [structs.replace(change, also=kept)])[0]
    made = zip(changes, outcomes, strict=True)
    failed = [change for change, outcome in made if not isinstance(outcome, Done)]
    if failed:
        note_unmade(service.store, failed)
    return outcomes


def commit_exactly(service: "Service", changes: Sequence[Change]) -> list[Outcome]:
    """Commit *changes*, free the slots of deliveries that they end, and learn from heartbeats."""
    outcomes = service.store.commit(changes)
    ended: list[tuple[Change, Task]] = []
    for change, outcome in zip(changes, outcomes, strict=True):
        if change.rule.source is not State.INFLIGHT or not isinstance(outcome, Done):
            continue
        if change.rule.target is State.INFLIGHT:
            service.leases.watch.renewed(outcome.task)
        elif change.ends_delivery_in is not None:
            ended.append((change, outcome.task))
    if ended:
        service.group_limits.ended(ended)
    if any(task.slot for _, task in ended):
        service.slots.ended(ended)
    return outcomes


def commit_proposed(
    service: "Service", entries: Sequence[Entry], plan: Callable[[Entry | Task], Change]
) -> list[Outcome]:
    """Commit the *plan* of each index entry, or of its task if that matters.

    It matters for a task that holds a key, is counted in a batch, or is dropped when it expires.
    """
    outcomes = service.store.commit([plan(entry) for entry in entries])
    for place, outcome in enumerate(outcomes):
        task = None if isinstance(outcome, Done) else outcome.task
        if task is not None and (task.dedupe_key or task.batches or task.on_expiry):
            outcomes[place] = commit(service, [plan(task)])[0]
    return outcomes


def check_fence(change: Change, refused: Refused, fence: KeyLock | None) -> None:
    """Raise OvertakenError if *fence* is a reason why *change* was *refused*."""
    if any(change.also[place] is fence for place in refused.blocked):
        raise OvertakenError


def with_id(store: "Store", task_id: str) -> Task | None:
    """Return the task of an id, or the tombstone of a removed one."""
    return (store.read([task_id]) or store.tombstones([task_id])).get(task_id)


def key_holder(
    store: "Store", queue: str, key: str, now: datetime
) -> tuple[str | None, Task | None]:
    """Return the id of who holds a dedupe key of *queue*, and that task if it lives."""
    lock = plan.holder(queue, key, value=None, expects=None)
    holder = store.key_lock(lock.kind, lock.name)
    held = store.read([holder]).get(holder) if holder else None
    return holder, held if held is not None and held.holds(queue, key, now) else None


def commit_with_key(service: "Service", change: Change, queue: str) -> tuple[Outcome, Task | None]:
    """Commit *change*, which may take a dedupe key of *queue*, also from a dead holder.

    Return the outcome, and the living task that holds the key if the change was refused for it.
    """
    outcome = commit(service, [change])[0]
    for _ in range(_LOOKS):
        if isinstance(outcome, Done) or not outcome.blocked:
            break
        lock = next(also for also in change.also if isinstance(also, KeyLock))
        holder, held = key_holder(service.store, queue, lock.name, service.now())
        if held is not None:
            return outcome, held
        taking = structs.replace(lock, expects=holder)
        also = tuple(taking if one is lock else one for one in change.also)
        outcome = commit(service, [structs.replace(change, also=also)])[0]
    return outcome, None
