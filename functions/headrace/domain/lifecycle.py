"""The task lifecycle, as one table.

Every rule about which transition is legal, who may make it, its condition on the lease and its
effect on the clock are in ``LIFECYCLE``.  The planner turns a row into a conditional change, the
stores turn the change into a write, the API names a refusal from it, the table in
docs/reference/lifecycle.md is printed from it (``python -m headrace.domain.lifecycle``) and the
tests walk all of it.

Rule of the file: code that asks "may this happen?" asks here.
"""

from dataclasses import dataclass
from enum import StrEnum, auto
from functools import cache
from typing import Final

from headrace.domain.task import SHOWN_STATES, State


class Action(StrEnum):
    """What can happen to a task: one verb per idea, from here to the metrics."""

    ENQUEUE = auto()
    OVERWRITE = auto()  #: a duplicate enqueue that changes the one that waits
    DEQUEUE = auto()
    HEARTBEAT = auto()  #: report INFLIGHT
    SUCCEED = auto()
    FAIL = auto()
    RELEASE = auto()
    MOVE = auto()
    RECLAIM = auto()  #: a lapsed lease, treated as a failed attempt
    EXPIRE = auto()
    RUN = auto()
    RESTART = auto()
    CANCEL = auto()
    DELETE = auto()
    PURGE = auto()
    UNDELETE = auto()


class Actor(StrEnum):
    """Who makes a transition."""

    PRODUCER = auto()
    WORKER = auto()
    OPERATOR = auto()
    SERVICE = auto()


class LeaseRule(StrEnum):
    """The condition on the lease, and the effect on it."""

    NONE = "-"
    TAKEN = "taken"  #: the transition grants a fresh one
    HELD = "held"  #: the caller must hold the valid one
    LAPSED = "lapsed"  #: the one there must be past its end
    CLOSED = "closed"  #: the one there must be of a group that is closed


class Clock(StrEnum):
    """The new value of ``scheduled_at``, the sort key of the index."""

    DUE = "the due time"
    LEASE_END = "end of the lease"
    KEPT = "kept"
    BACKOFF = "now + backoff"
    NOW = "now"
    NONE = "-"


@dataclass(frozen=True, slots=True)
class Rule:
    """One legal transition.  ``source`` None is a new task, ``target`` None a removed one.

    ``kept_by`` names the setting that keeps the finished task: without it the task is gone.
    """

    action: Action
    source: State | None
    target: State | None
    actor: Actor
    lease: LeaseRule
    clock: Clock
    kept_by: str | None = None

    @property
    def asked_by(self) -> Actor:
        """Return the narrowest kind of key that may ask for it.

        A cancel is planned as an operator's action, but every key that may enqueue may cancel.
        """
        return Actor.PRODUCER if self.action is Action.CANCEL else self.actor


_E, _I, _S, _D = SHOWN_STATES
_X = State.DELETED
_ALL: Final = SHOWN_STATES
_L = LeaseRule
_DEAD_LETTERS: Final = "dead_letter_queue_config"
_HISTORY: Final = "history_retention_in_seconds"

# fmt: off
LIFECYCLE: Final[tuple[Rule, ...]] = (
    #    action            from  to    actor           lease      scheduled_at
    Rule(Action.ENQUEUE,   None, _E,   Actor.PRODUCER, _L.NONE,   Clock.DUE),
    Rule(Action.OVERWRITE, _E,   _E,   Actor.PRODUCER, _L.NONE,   Clock.DUE),
    Rule(Action.DEQUEUE,   _E,   _I,   Actor.WORKER,   _L.TAKEN,  Clock.LEASE_END),
    Rule(Action.HEARTBEAT, _I,   _I,   Actor.WORKER,   _L.HELD,   Clock.KEPT),
    Rule(Action.SUCCEED,   _I,   _S,   Actor.WORKER,   _L.HELD,   Clock.NOW,     _HISTORY),
    Rule(Action.FAIL,      _I,   _E,   Actor.WORKER,   _L.HELD,   Clock.BACKOFF),
    Rule(Action.FAIL,      _I,   _D,   Actor.WORKER,   _L.HELD,   Clock.NOW,     _DEAD_LETTERS),
    Rule(Action.RELEASE,   _I,   _E,   Actor.WORKER,   _L.HELD,   Clock.DUE),
    Rule(Action.RELEASE,   _I,   _D,   Actor.WORKER,   _L.HELD,   Clock.NOW,     _DEAD_LETTERS),
    Rule(Action.RELEASE,   _I,   _E,   Actor.SERVICE,  _L.CLOSED, Clock.NOW),
    Rule(Action.RELEASE,   _I,   _D,   Actor.SERVICE,  _L.CLOSED, Clock.NOW,     _DEAD_LETTERS),
    Rule(Action.MOVE,      _I,   _E,   Actor.WORKER,   _L.HELD,   Clock.DUE),
    Rule(Action.MOVE,      _E,   _E,   Actor.OPERATOR, _L.NONE,   Clock.DUE),
    Rule(Action.MOVE,      _D,   _E,   Actor.OPERATOR, _L.NONE,   Clock.NOW),
    Rule(Action.RECLAIM,   _I,   _E,   Actor.SERVICE,  _L.LAPSED, Clock.BACKOFF),
    Rule(Action.RECLAIM,   _I,   _D,   Actor.SERVICE,  _L.LAPSED, Clock.NOW,     _DEAD_LETTERS),
    Rule(Action.EXPIRE,    _E,   _D,   Actor.SERVICE,  _L.NONE,   Clock.NOW,     _DEAD_LETTERS),
    Rule(Action.RUN,       _E,   _E,   Actor.OPERATOR, _L.NONE,   Clock.NOW),
    Rule(Action.RESTART,   _D,   _E,   Actor.OPERATOR, _L.NONE,   Clock.NOW),
    Rule(Action.RESTART,   _S,   _E,   Actor.OPERATOR, _L.NONE,   Clock.NOW),
    Rule(Action.CANCEL,    _E,   _D,   Actor.OPERATOR, _L.NONE,   Clock.NOW,     _DEAD_LETTERS),
    Rule(Action.CANCEL,    _I,   _D,   Actor.OPERATOR, _L.NONE,   Clock.NOW,     _DEAD_LETTERS),
    *(Rule(Action.DELETE,  of, None, Actor.OPERATOR, _L.NONE,   Clock.NONE) for of in _ALL),
    *(Rule(Action.DELETE,  of, _X,   Actor.OPERATOR, _L.NONE,   Clock.NOW)  for of in _ALL),
    Rule(Action.DELETE,    _E,   None, Actor.SERVICE,  _L.NONE,   Clock.NONE),
    *(Rule(Action.PURGE,   of, None, Actor.OPERATOR, _L.NONE,   Clock.NONE) for of in _ALL),
    *(Rule(Action.PURGE,   of, _X,   Actor.OPERATOR, _L.NONE,   Clock.NOW)  for of in _ALL),
    Rule(Action.DELETE,    _X, None, Actor.SERVICE,  _L.NONE,   Clock.NONE),
    Rule(Action.PURGE,     _X, None, Actor.SERVICE,  _L.NONE,   Clock.NONE),
    Rule(Action.UNDELETE,  _X, _E,   Actor.OPERATOR, _L.NONE,   Clock.DUE),
    Rule(Action.UNDELETE,  _X, _S,   Actor.OPERATOR, _L.NONE,   Clock.KEPT),
    Rule(Action.UNDELETE,  _X, _D,   Actor.OPERATOR, _L.NONE,   Clock.KEPT),
)
# fmt: on


@cache
def rules(action: Action, source: State | None, *, actor: Actor | None = None) -> tuple[Rule, ...]:
    """Return the rows for *action* from *source*, by *actor* if one is named.

    No row means that it is not legal there.
    """
    return tuple(
        row
        for row in LIFECYCLE
        if (row.action, row.source) == (action, source) and actor in (None, row.actor)
    )


@cache
def rule(
    action: Action, source: State | None, target: State | None, *, actor: Actor | None = None
) -> Rule:
    """Return the row for a transition, by *actor* if one is named, else by the first in the table.

    Raises LookupError when the table has none: a planner asked for something illegal.
    """
    for row in rules(action, source, actor=actor):
        if row.target is target:
            return row
    message = f"no such transition: {action} from {source} to {target}"
    raise LookupError(message)


def table() -> str:
    """Return the table in Markdown."""
    lines = [
        "| action | from | to | by | lease | `scheduled_at` becomes | kept by |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in LIFECYCLE:
        kept = f"`{row.kept_by}`, else gone" if row.kept_by else "-"
        lines.append(
            f"| {row.action} | {row.source or '-'} | {row.target or 'gone'} | {row.asked_by} "
            f"| {row.lease} | {row.clock} | {kept} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())  # noqa: T201  this is the command that prints the docs
