"""What the last proof found."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from console.chalicelib.pages.frame import Page
from console.chalicelib.pages.parts import Empty, Fact, Link


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One change that should not be."""

    task: Link
    queue: Link
    version: int
    move: str
    at: datetime
    detail: str


@dataclass(frozen=True, slots=True)
class Kind:
    """Findings of one kind: how many, what it means, and the first of them."""

    name: str
    number: int
    says: str
    rows: tuple[FindingRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofPage(Page):
    """When it was, what it looked at, and what it found; ``empty`` when there was none yet."""

    template: ClassVar[str] = "proof.html"
    verdict: str
    holds: bool
    facts: tuple[Fact, ...]
    kinds: tuple[Kind, ...]
    empty: Empty | None
