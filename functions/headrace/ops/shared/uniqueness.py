"""Committing changes that may take a key lock away with them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from headrace.domain.change import Change, Entry, KeyLock
from headrace.domain.task import Task
from headrace.store.base import Done, Outcome, Store


def commit(store: Store, changes: Sequence[Change]) -> list[Outcome]:
    """Commit *changes*; what a task cannot give up because it has it no longer, is left alone.

    A task that waited past its expiry may have lost its dedupe key to a newer one.
    """
    outcomes = store.commit(changes)
    for place, (change, outcome) in enumerate(zip(changes, outcomes, strict=True)):
        if isinstance(outcome, Done) or not outcome.blocked:
            continue
        lost = [change.also[blocked] for blocked in outcome.blocked]
        if all(isinstance(also, KeyLock) and also.value is None for also in lost):
            kept = tuple(also for also in change.also if also not in lost)
            outcomes[place] = store.commit([replace(change, also=kept)])[0]
    return outcomes


def commit_proposed(
    store: Store, entries: Sequence[Entry], plan: Callable[[Entry | Task], Change]
) -> list[Outcome]:
    """Commit what *plan* makes of index entries, and of the task itself where it holds a key."""
    outcomes = store.commit([plan(entry) for entry in entries])
    for place, outcome in enumerate(outcomes):
        if not isinstance(outcome, Done) and outcome.task and outcome.task.dedupe_key:
            outcomes[place] = commit(store, [plan(outcome.task)])[0]
    return outcomes
