"""All queues."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from console.chalicelib.pages.frame import Page
from console.chalicelib.pages.parts import Age, Empty, Field, Pager, Spark


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue at a glance; ages are seconds, rates events per second."""

    name: str
    url: str
    ready_url: str
    dead_url: str
    description: str
    scheduled: int
    ready: int
    inflight: int
    succeeded: int
    dead: int
    oldest: Age | None
    enqueued_rate: float
    succeeded_rate: float
    failed_rate: float
    spark: Spark
    paused: bool
    resume_at: datetime | None
    limited: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuesPage(Page):
    """One row a queue."""

    template: ClassVar[str] = "queues.html"
    here: str
    prefix: Field
    rows: tuple[QueueRow, ...]
    as_of: datetime | None
    create: str | None
    pager: Pager
    empty: Empty
