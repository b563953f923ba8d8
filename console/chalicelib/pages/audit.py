"""What was changed by hand."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from console.chalicelib.pages.frame import Page
from console.chalicelib.pages.parts import Empty, Pager
from console.chalicelib.pages.queue import FilterForm


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One action; ``filters`` say to what, ``ids`` to which, as far as they fit.

    ``actor_url`` leads to all that the same key did, known by its id, not its name.
    ``changed`` and ``matched`` are None while it goes on, or when it was cut off.
    """

    at: datetime
    actor: str
    actor_id: str | None
    actor_url: str | None
    action: str
    queue: str
    queue_url: str | None
    filters: str
    filters_url: str | None
    ids: tuple[str, ...]
    more_ids: int
    matched: int | None
    changed: int | None
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage(Page):
    """Actions, the newest first."""

    template: ClassVar[str] = "audit.html"
    filter: FilterForm
    rows: tuple[AuditRow, ...]
    pager: Pager
    empty: Empty
