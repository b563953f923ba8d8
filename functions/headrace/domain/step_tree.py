"""Steps that wait for steps, as a tree: each stands under the one step that all its ways pass.

Of a chain, each step is under the one before.  Of a diamond, the two in the middle and the last one
are all under the first: the last waits for both, so it is under neither.  That is the tree of
dominators of the graph, and every step is in it once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class StepNode(Generic[_T]):
    """A step, and what stands under it."""

    step: _T
    next: "list[StepNode[_T]]" = field(default_factory=list)


DEEPEST: Final = 6
"""How many levels a tree has: a long chain would push itself out of a narrow window."""


def step_tree(
    steps: Iterable[_T], name: Callable[[_T], str], after: Callable[[_T], Sequence[str]]
) -> list[StepNode[_T]]:
    """Return *steps* as a tree: those that wait for none, and under each what comes of it.

    *name* and *after* tell of a step what it is called, and the names of those that it waits for.
    Names of none of them are left out, and so is what a step of a circle waits for.  Steps of one
    parent come in the order given, those that wait for others of it behind these.  What would be
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

    They come in an order in which each is behind all that it waits for.
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
    """Return the nearest that all of *names* are under, or are; None where there is none."""
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
