"""Reconstruct the past of a task from one look at it: changes made up from its present state.

A stored task has the times when it came into its queue and when its last delivery began and ended.
Charts and reports need these changes; the changes between them are lost.
Pure Python: dictionaries in, lines of the lake out.  Instants are microseconds since 1970.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from headrace.domain.fingerprints import MESSAGE
from headrace.domain.lifecycle import Action
from headrace.domain.task import FINISHED, State
from headrace.domain.task_fields import REPLAYED
from headrace.history.changelog import FORGET, Line

SIDES: Final = ("queue", "state", "due", "enqueued", "attempts", "hop", "lease", "lease_end")
"""The columns that a change has on both sides."""

GIVEN: Final = ("payload", *(field.api_name for field in REPLAYED))
"""What a producer said of a task, which a replay says again."""

_DELIVERY: Final = ("worker", "started_at", "lease_group")
_END: Final = ("finished_at", "settled", "dead_reason", "result_bytes")
_KEPT: Final = ("expires_at", "payload_bytes")
_LIVE: Final = (State.ENQUEUED, State.INFLIGHT)
_FAILURES: Final = (Action.FAIL, Action.RECLAIM)
_REPORTED: Final = (Action.SUCCEED, Action.RELEASE, *_FAILURES)
_SECOND: Final = 1_000_000

SeenTask = Mapping[str, Any]
"""A task as it was seen, by lake columns; a side of a change has fewer of them."""


def reconstructed(
    task: SeenTask | None, first: SeenTask | None, last: SeenTask | None
) -> Iterator[Line]:
    """Yield the changes that follow from *task*, beyond those that the lake already holds.

    The lake's changes lead from *first* to *last*; if they include the task's creation or its end,
    the state there is None.  Each of the three is None if nothing is known.
    """
    if first is not None and first["state"] in _LIVE:
        yield from _lines(_beginning(first), None)
    if task is None:
        return
    if task["deleted"]:
        if last is not None and last["state"] is not None:
            yield _removal(task, last)
    elif last is None or task["version"] > last["version"]:
        yield from _lines(task, last)


def _beginning(first: SeenTask) -> SeenTask:
    """The task just before the first change that is known."""
    held = first["state"] == State.INFLIGHT
    return {
        **first,
        "version": first["version"] - 1,
        "last_move": Action.DEQUEUE if held else Action.ENQUEUE,
        "started_at": first["started_at"] if held else None,
    }


def _removal(task: SeenTask, last: SeenTask) -> Line:
    """The end of a task that is gone; its version can only be guessed."""
    version = max(last["version"], task.get("version") or 0) + 1
    move = FORGET if last["state"] in FINISHED else Action.DELETE
    return _line(task, version, move, task["written_at"], last, None)


def _lines(task: SeenTask, before: SeenTask | None) -> Iterator[Line]:
    """Yield how *task* came from *before* to where it is: it arrived, was delivered, ended."""
    state, version, move = task["state"], task["version"], task["last_move"]
    was, known = (before["state"], before["version"]) if before is not None else (None, 0)
    fresh = was is None or was in FINISHED
    finished = state in FINISHED
    started: int = task.get("started_at") or 0
    tried = finished and move in _REPORTED and started >= task["enqueued"]
    held = state == State.INFLIGHT or tried
    attempts = task["attempts"] + (tried and move == Action.RELEASE)  # which gave one back
    if fresh:
        side = {
            **_side(task),
            "state": State.ENQUEUED,
            "attempts": attempts - held,
            "lease": None,
            "lease_end": None,
        }
        at_version = version - (2 if tried else 1 if held or finished else 0)
        if at_version > known:
            arrival = Action.ENQUEUE if was is None else Action.RESTART
            yield _line(task, at_version, arrival, task["enqueued"], before, side, GIVEN)
            before = side
    if held and was != State.INFLIGHT:
        lease = task.get("lease") or task.get("settled") or "unknown"
        side = {**_side(task), "state": State.INFLIGHT, "attempts": attempts, "lease": lease}
        at_version = version - finished
        if at_version > known:
            yield _line(task, at_version, Action.DEQUEUE, started, before, side, _DELIVERY)
            before = side
    if finished or (not fresh and state == State.ENQUEUED):
        at = task.get("finished_at") or task.get("written_at") or max(task["enqueued"], started)
        line = _line(task, version, move, at, before, _side(task), (*_DELIVERY, *_END))
        yield {**line, **_error(task)}


def _side(task: SeenTask) -> dict[str, Any]:
    return {name: task.get(name) for name in SIDES}


def _line(
    task: SeenTask,
    version: int,
    move: str,
    at: int,
    before: SeenTask | None,
    after: SeenTask | None,
    more: tuple[str, ...] = (),
) -> Line:
    line: Line = {
        "recorded_at": at // _SECOND * _SECOND,
        "at": at,
        "version": version,
        "move": str(move),
        **{f"{name}_from": value for name, value in _side(before or {}).items()},
        **{f"{name}_to": value for name, value in _side(after or {}).items()},
        **{name: _plain(task.get(name)) for name in (*_KEPT, *more)},
    }
    return {name: value for name, value in line.items() if value is not None}


def _plain(value: object) -> object:
    """Return *value* as JSON has it; Arrow gives a map as a list of pairs."""
    return dict(value) if isinstance(value, list) else value


def _error(task: SeenTask) -> Line:
    """The error of the attempt that ended here."""
    if task["last_move"] not in _FAILURES or not task.get("error"):
        return {}
    error = json.loads(task["error"])
    return {
        f"error_{name}": str(error.get(name, ""))[:MESSAGE] for name in ("kind", "type", "message")
    }
