"""Queues and the flows between them as a picture: columns from the sources on.  Pure arithmetic.

A queue stands one column right of the furthest that feeds it.  Flows that lead back, which loops
have, are left out of that reckoning and led round below the others, between the columns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.history.flows import Flow

from . import formatting

BOX_WIDTH: Final = 176
BOX_HEIGHT: Final = 40
_COLUMN: Final = 288  # from one box to the next
_ROW: Final = 72
_EDGE: Final = 8
_LETTERS: Final = 22  # of a name, in a box
_WIDEST: Final = 8.0  # px of the strongest flow
_TIP: Final = 12  # px of an arrow's head
_SIDES: Final = 2
_ROUND: Final = 28  # px beside a box, in which a flow that leads back turns
_BEND: Final = 8
_LANE: Final = 20  # px from one flow that leads back to the next


@dataclass(frozen=True, slots=True)
class Box:
    """A queue in the picture: where it is, and how many tasks are enqueued in it."""

    name: str
    shown: str
    url: str
    enqueued: int
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Join:
    """A flow in the picture: an SVG path, how wide (px), its word and where that stands."""

    path: str
    width: float
    word: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Flowchart:
    """The picture, and the same in words."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    joins: tuple[Join, ...]
    words: str


def flowchart(
    flows: Sequence[Flow], enqueued: Mapping[str, int], urls: Mapping[str, str]
) -> Flowchart:
    """Return the picture of *flows*; *urls* lead to the queues."""
    names = sorted({name for flow in flows for name in (flow.source, flow.target)})
    columns = _columns(flows, names)
    rows = _rows(flows, columns)
    back = [flow for flow in flows if columns[flow.source] >= columns[flow.target]]
    left = _EDGE + (_ROUND if back else 0)
    spots = {name: (left + columns[name] * _COLUMN, _EDGE + rows[name] * _ROW) for name in names}
    boxes = tuple(
        Box(name, _fitted(name), urls[name], enqueued.get(name, 0), *spots[name]) for name in names
    )
    strongest = max((flow.day for flow in flows), default=1)
    depth = max(rows.values(), default=0)
    floor = _EDGE + (depth + 1) * _ROW
    joins = tuple(
        _join(flow, spots, strongest, floor + _LANE * back.index(flow) if flow in back else None)
        for flow in flows
    )
    width = 2 * left + max(columns.values(), default=0) * _COLUMN + BOX_WIDTH
    return Flowchart(
        width=width,
        height=floor + _LANE * len(back) + (_EDGE if back else _EDGE + BOX_HEIGHT - _ROW),
        boxes=boxes,
        joins=joins,
        words=_words(flows, len(names)),
    )


def _columns(flows: Sequence[Flow], names: Sequence[str]) -> dict[str, int]:
    """Return each queue's column; strong flows count first, and none that closes a loop."""
    ahead: dict[str, set[str]] = {name: set() for name in names}
    for flow in flows:
        if not _reaches(ahead, flow.target, flow.source):
            ahead[flow.source].add(flow.target)
    columns = dict.fromkeys(names, 0)
    for _ in names:
        for source, targets in ahead.items():
            for target in targets:
                columns[target] = max(columns[target], columns[source] + 1)
    return columns


def _reaches(ahead: Mapping[str, set[str]], start: str, goal: str) -> bool:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name == goal:
            return True
        if name not in seen:
            seen.add(name)
            waiting += ahead[name]
    return False


def _rows(flows: Sequence[Flow], columns: Mapping[str, int]) -> dict[str, int]:
    """Return each queue's row: near to what feeds it, so that lines cross little."""
    rows: dict[str, int] = {}
    for column in range(max(columns.values(), default=-1) + 1):
        here = [name for name in columns if columns[name] == column]

        def height(name: str) -> float:
            feeding = [rows[flow.source] for flow in flows
                       if flow.target == name and flow.source in rows]  # fmt: skip
            return sum(feeding) / len(feeding) if feeding else 0.0

        taken: set[int] = set()
        for name in sorted(here, key=lambda each: (height(each), each)):
            row = round(height(name))
            while row in taken:
                row += 1
            taken.add(row)
            rows[name] = row
    return rows


def _join(
    flow: Flow, spots: Mapping[str, tuple[int, int]], strongest: int, below: int | None
) -> Join:
    (x1, y1), (x2, y2) = spots[flow.source], spots[flow.target]
    middle = BOX_HEIGHT // _SIDES
    width = round(1.5 + (_WIDEST - 1.5) * (flow.day / strongest) ** 0.5, 1)
    word = f"{formatting.number(flow.hour)} /h"
    lift = round(width / 2) + 5  # of the word, above the line
    if below is not None:
        out, into = x1 + BOX_WIDTH + _ROUND // _SIDES, x2 - _ROUND + _BEND // _SIDES
        foot1, foot2 = y1 + BOX_HEIGHT - _BEND, y2 + BOX_HEIGHT - _BEND
        path = (
            f"M{x1 + BOX_WIDTH} {foot1}H{out - _BEND}q{_BEND} 0 {_BEND} {_BEND}V{below - _BEND}"
            f"q0 {_BEND} -{_BEND} {_BEND}H{into + _BEND}q-{_BEND} 0 -{_BEND} -{_BEND}"
            f"V{foot2 + _BEND}q0 -{_BEND} {_BEND} -{_BEND}H{x2 - _TIP}"
        )
        return Join(path, width, word, (out + into) // 2, below - lift)
    start, end = (x1 + BOX_WIDTH, y1 + middle), (x2 - _TIP, y2 + middle)
    bend = (start[0] + end[0]) // 2 if end[0] - start[0] < _COLUMN else end[0] - 48
    path = f"M{start[0]} {start[1]}C{bend} {start[1]} {bend} {end[1]} {end[0]} {end[1]}"
    return Join(path, width, word, (start[0] + end[0]) // 2, (start[1] + end[1]) // 2 - lift)


def _fitted(name: str) -> str:
    """Return a name as it fits into a box: its end tells more than its middle."""
    if len(name) <= _LETTERS:
        return name
    head = _LETTERS // 2 - 1
    return f"{name[:head]}…{name[head + 1 - _LETTERS :]}"


def _words(flows: Sequence[Flow], queues: int) -> str:
    count = formatting.count_of(len(flows), "flow")
    strongest = max(flows, key=lambda flow: flow.day, default=None)
    if strongest is None:
        return "No flows."
    return (
        f"{count} between {formatting.count_of(queues, 'queue')}; the strongest goes from "
        f"{strongest.source} to {strongest.target}. The table below has them all."
    )
