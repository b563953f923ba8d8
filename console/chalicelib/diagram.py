"""The lifecycle as a picture with one task in it; the transitions are the domain's."""

from dataclasses import dataclass
from typing import Final

from headrace.domain.lifecycle import Action, rules
from headrace.domain.task import State, Status

_PLACES: Final = {
    Status.SCHEDULED: (8, 56),
    Status.READY: (168, 56),
    Status.INFLIGHT: (328, 56),
    Status.SUCCEEDED: (536, 16),
    Status.DEAD: (536, 92),
}
_ARROWS: Final = (
    # action, from, to, path, where its word stands
    (None, None, None, "M136 72H164", (150, 66)),
    (Action.DEQUEUE, State.ENQUEUED, State.INFLIGHT, "M296 72H324", (310, 50)),
    (Action.SUCCEED, State.INFLIGHT, State.SUCCEEDED, "M456 66L532 36", (482, 40)),
    (Action.FAIL, State.INFLIGHT, State.DEAD, "M456 78L532 106", (482, 108)),
    (Action.FAIL, State.INFLIGHT, State.ENQUEUED, "M392 56V24H72V52", (232, 18)),
    (Action.RESTART, State.DEAD, State.ENQUEUED, "M600 124V140H232V92", (412, 134)),
)
_WORDS: Final = {Action.FAIL: "fail", Action.SUCCEED: "succeed", Action.DEQUEUE: "dequeue"}


@dataclass(frozen=True, slots=True)
class Node:
    """One state in the diagram: where it is drawn, and whether the task is in it."""

    status: Status
    x: int
    y: int
    current: bool


@dataclass(frozen=True, slots=True)
class Arrow:
    """One move in the diagram, as an SVG path, with its word."""

    path: str
    word: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Diagram:
    """The lifecycle with the task in it, and the same in words; ``name`` is one of its own."""

    name: str
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    words: str


def lifecycle(current: Status) -> Diagram:
    """Return the picture for a task whose status is *current*."""
    nodes = tuple(Node(status, x, y, status is current) for status, (x, y) in _PLACES.items())
    arrows = []
    for action, source, target, path, (x, y) in _ARROWS:
        if action is None:
            arrows.append(Arrow(path, "", x, y))  # time alone makes a scheduled task ready
        elif any(row.target is target for row in rules(action, source)):
            retry = action is Action.FAIL and target is State.ENQUEUED
            arrows.append(Arrow(path, "retry" if retry else _WORDS.get(action, str(action)), x, y))
    summary = (
        f"The task is {current.value.lower()}. Its life goes from scheduled to ready to inflight"
    )
    return Diagram(
        current.value.lower(), nodes, tuple(arrows), f"{summary}, and ends as succeeded or dead."
    )
