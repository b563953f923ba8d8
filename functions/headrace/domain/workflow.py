"""How workflows are made of batches: the ids of their parts and of their tasks.

The *whole* is a batch of all steps.  A step that waits is made by a batch that stands within the
whole, a *part* of it: its members are the steps that are waited for, its callback is the step.
A task is in four batches at most.  A step is in the whole, and so in three parts: where more than
three steps wait for one, *relays* stand between, which do nothing: callbacks of parts that are
members of up to four other parts, and not of the whole.

Steps that wait for steps, as a tree: each stands under the one step that all its ways pass.

Of a chain, each step is under the one before.  Of a diamond, the two in the middle and the last one
are all under the first: the last waits for both, so it is under neither.  That is the tree of
dominators of the graph, and every step is in it once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from headrace.domain.batch import Callback

WORKFLOW_TAG: Final = "workflow"
STEP_TAG: Final = "step"
"""The tags that hold the ids of a step's workflow, and the step's name."""


def relay_name(number: int) -> str:
    """Return the name of a relay of a workflow; no step has one that begins so."""
    return f"-{number}"


def is_relay(name: str) -> bool:
    """Return whether *name* is that of a relay."""
    return name.startswith("-")


def part_id(whole: str, step: str) -> str:
    """Return the id of the batch whose callback is *step* of the workflow *whole*."""
    return f"{whole}-{step}"


def root_id(whole: str, place: int) -> str:
    """Return the id of the task of the first step at *place*."""
    return f"{whole}-{place}"


def part_of(
    batch_id: str, callbacks: Iterable[Callback], whole_of: Callable[[str], str | None]
) -> str | None:
    """Return the batch that a new one stands within, as a part of it; None for none.

    That is one that a callback of it is a member of, and with whose id its own begins; for the part
    of a relay the whole of a part that the relay is in, by *whole_of*.
    """
    parents = sorted({id_ for one in callbacks for id_ in one.new.batches}, key=len)
    for parent in parents:
        if batch_id.startswith(part_id(parent, "")):
            return parent
    wholes = (whole_of(parent) for parent in parents)
    return next((one for one in wholes if one and batch_id.startswith(part_id(one, ""))), None)


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class StepNode(Generic[_T]):
    """A step, and the steps below it in the tree."""

    step: _T
    next: "list[StepNode[_T]]" = field(default_factory=list)


DEEPEST: Final = 6
"""The most levels of a tree; a longer chain would not fit a narrow window."""


def step_tree(
    steps: Iterable[_T], name: Callable[[_T], str], after: Callable[[_T], Sequence[str]]
) -> list[StepNode[_T]]:
    """Return *steps* as a tree, with the first steps as its roots.

    *name* and *after* return the name of a step, and the names of the steps that it waits for.
    Unknown names are ignored, and so is a circle.  Steps of one parent keep their order, except
    that a step comes after the steps that it waits for.  What would be
    below the deepest level stands on it.
    """
    nodes = {name(step): StepNode(step) for step in steps}
    waits = {one: [other for other in after(nodes[one].step) if other in nodes] for one in nodes}
    roots: list[StepNode[_T]] = []
    parents, depths = _parents(waits)
    for one in parents:
        above = parents[one]
        while above is not None and depths[above] >= DEEPEST - 1:
            above = parents[above]
        (roots if above is None else nodes[above].next).append(nodes[one])
    return roots


def _parents(waits: Mapping[str, Sequence[str]]) -> tuple[dict[str, str | None], dict[str, int]]:
    """Return each name's parent and depth.

    Each name comes after the names that it waits for.
    """
    parents: dict[str, str | None] = {}
    depths: dict[str, int] = {}
    left = list(waits)
    while left:
        ready = [one for one in left if all(other in parents for other in waits[one])]
        for one in ready or left[:1]:  # a circle is opened at its first
            parent = _common([other for other in waits[one] if other in parents], parents, depths)
            parents[one] = parent
            depths[one] = 0 if parent is None else depths[parent] + 1
        left = [one for one in left if one not in parents]
    return parents, depths


def _common(
    names: Sequence[str], parents: Mapping[str, str | None], depths: Mapping[str, int]
) -> str | None:
    """Return the nearest common ancestor of *names*, or None."""
    if not names:
        return None
    common: str | None = names[0]
    for name in names[1:]:
        other: str | None = name
        while common != other:
            if common is None or other is None:
                return None
            if depths[common] >= depths[other]:
                common = parents[common]
            else:
                other = parents[other]
    return common
