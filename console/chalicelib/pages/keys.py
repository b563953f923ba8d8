"""Keys: those there are, a new one, and its secret, once."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from console.chalicelib.pages.frame import Page
from console.chalicelib.pages.parts import Empty, Fact, Pager


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key; ``own`` when it opened this session, ``over`` when it has expired."""

    name: str
    prefix: str
    role: str
    queues: tuple[str, ...]
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    over: bool
    own: bool
    rotate: str
    revoke: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysPage(Page):
    """Every key that is not wider than the visitor's own."""

    template: ClassVar[str] = "keys.html"
    rows: tuple[KeyRow, ...]
    create: str
    pager: Pager
    empty: Empty


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKeyPage(Page):
    """The only page that ever shows a secret."""

    template: ClassVar[str] = "new_key.html"
    secret: str
    facts: tuple[Fact, ...]
    back: str
