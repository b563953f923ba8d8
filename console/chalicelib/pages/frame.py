"""What surrounds every page: top bar, breadcrumb, message, footer."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from console.chalicelib.pages.parts import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The root of all pages."""

    template: ClassVar[str]
    title: str
    crumbs: tuple[Link, ...] = ()
    http_status: int = 200


@dataclass(frozen=True, slots=True)
class Flash:
    """A message about what has just been done; ``kind`` is done or failed."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Who:
    """Who is signed in."""

    name: str
    role: str
    queues: str
    sign_out: str


@dataclass(frozen=True, slots=True)
class PageCost:
    """What the page cost: DynamoDB's units, and milliseconds."""

    write: float
    read: float
    millis: float


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything around a page; ``token`` is what its forms carry."""

    now: datetime
    environment: str
    home: str
    style: str
    script: str
    icon: str
    token: str = ""
    who: Who | None = None
    nav: tuple[Link, ...] = ()
    search: str = ""
    searched: str = ""
    flash: Flash | None = None
    units: PageCost | None = None
    request_id: str = ""
