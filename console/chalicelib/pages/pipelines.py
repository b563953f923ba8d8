"""Queues joined by the moves between them."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from console.chalicelib.pages.frame import Page
from console.chalicelib.pages.parts import Empty, Link


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


@dataclass(frozen=True, slots=True)
class FlowRow:
    """One flow in the table."""

    source: Link
    target: Link
    hour: int
    day: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinesPage(Page):
    """Who feeds whom."""

    template: ClassVar[str] = "pipelines.html"
    picture: Flowchart | None
    left_out: int
    rows: tuple[FlowRow, ...]
    as_of: datetime | None
    empty: Empty
