"""Dead letters, alike ones together."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from console.chalicelib.pages.frame import Page
from console.chalicelib.pages.parts import Choice, Empty, Field, Hidden, Pager


@dataclass(frozen=True, slots=True)
class GroupQueue:
    """A queue with dead of a group; ``url`` lists them."""

    name: str
    url: str
    count: int


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Dead tasks whose errors are alike; ``hidden`` is what a form says of them."""

    type: str
    message: str
    count: int
    first: datetime
    last: datetime
    queues: tuple[GroupQueue, ...]
    sample: str
    sample_url: str
    hidden: tuple[Hidden, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadPage(Page):
    """What tasks died of, over queues; ``looked`` says of which dead."""

    template: ClassVar[str] = "dead.html"
    here: str
    prefix: Field
    looked: str
    groups: tuple[DeadGroup, ...]
    more: str
    actions: tuple[Choice, ...]
    pager: Pager
    empty: Empty
