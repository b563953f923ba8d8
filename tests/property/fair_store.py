"""A store of one shard with lines, and with faults that may be planted in it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from headrace.domain.change import Change
from headrace.domain.fairness import (
    STEP,
    GroupMode,
    GroupSettings,
    TurnTaking,
    instant_of_turn,
)
from headrace.domain.lifecycle import Action
from headrace.domain.task import RETURN_LANE, TURN_LANE, Place, State
from headrace.store.base import EntryPage, Outcome
from headrace.store.memory import MemoryStore

WEIGHTS = {"heavy": 4.0, "light": 0.5}

SAVED = "a line that is behind goes on from where it is"
BACKWARDS = "a line begins anew at what is delivered"
BY_DUE = "turns are due times"
GREEDY = "the lane of turns goes before the others"
WEIGHTLESS = "weights count for nothing"
FORGETFUL = "nobody notes what is delivered"
DOUBLE = "a retry goes back to its turn"


class CallerDied(BaseException):
    """It does nothing more."""


class LineStore(MemoryStore):
    """A store whose index may lag, whose callers may die, and with a planted *fault*."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.past: MemoryStore | None = None
        self.dies: str | None = None

    def freeze(self) -> None:
        """Let the index show from now on what it shows now."""
        self.past = MemoryStore()
        self.past._tasks = dict(self._tasks)  # noqa: SLF001  its own kind
        index = {place: [*keys] for place, keys in self._index.items()}
        self.past._index.update(index)  # noqa: SLF001  likewise

    def entries(self, place: Place, **how: Any) -> EntryPage:
        if self.fault == GREEDY and place.lane in (0, RETURN_LANE):
            turns = MemoryStore.entries(self, replace(place, lane=TURN_LANE), limit=1)
            if turns.entries and place.state is State.ENQUEUED:
                return EntryPage((), None)
        return MemoryStore.entries(self.past or self, place, **how)

    def take_turns(self, queue: str, take: TurnTaking) -> int:
        if self.fault == SAVED:
            take = replace(take, delivered=0)
        if self.fault == BACKWARDS:
            self._lines.pop((queue, take.name), None)
        if self.fault == WEIGHTLESS:
            step = GroupSettings(GroupMode.FAIR, WEIGHTS).step(take.name[1:] or None)
            take = replace(take, length=take.length // step * STEP)
        end = super().take_turns(queue, take)
        if self.dies == "in line":
            raise CallerDied
        return end

    def note_delivered(self, queue: str, turn: int, *, expires_at: datetime) -> None:
        if self.fault != FORGETFUL:
            super().note_delivered(queue, turn, expires_at=expires_at)

    def commit(self, changes: Sequence[Change], **how: Any) -> list[Outcome]:
        dies = self.dies if any(one.rule.action is Action.DEQUEUE for one in changes) else None
        if dies == "before":
            raise CallerDied
        outcomes = super().commit([self._planted(one) for one in changes], **how)
        if dies == "after":
            raise CallerDied
        return outcomes

    def _planted(self, change: Change) -> Change:
        new = change.insert
        if self.fault == BY_DUE and new is not None and new.turn is not None:
            since = (new.due_at - datetime.fromisoformat("2026-11-21T00:00:00Z")).total_seconds()
            turn = instant_of_turn(int(since * 1_000_000))
            return replace(change, insert=replace(new, scheduled_at=turn, turn=turn))
        if self.fault == DOUBLE and change.rule.action in (Action.FAIL, Action.RELEASE):
            task = self._tasks.get(change.task_id)
            if task is not None and task.turn is not None and "due_at" in change.put:
                place = replace(change.put["place"], lane=TURN_LANE)
                put = {**change.put, "place": place, "scheduled_at": task.turn}
                return replace(change, put=put, clear=tuple(c for c in change.clear if c != "turn"))
        return change
