"""What holds deliveries back: slots for tasks in flight, and tokens of a rate.

Queues without limits never come here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from headrace.domain.change import Change
from headrace.domain.queue import Queue
from headrace.ops.slots import Slots
from headrace.ops.tokens import Tokens
from headrace.store.base import Outcome, Store


@dataclass(frozen=True, slots=True)
class Limiting:
    """The two limits that a queue may have."""

    slots: Slots
    tokens: Tokens

    def forget(self, queue: str) -> None:
        """Drop everything kept of the limits of a queue that is deleted."""
        self.tokens.forget(queue)
        self.slots.forget(queue)


class Freeing:
    """Passes everything on to *store*, and frees the slots of what it ends, whoever ends it."""

    def __init__(self, store: Store, slots: Slots) -> None:
        self._store = store
        self._slots = slots

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever the store has
        return getattr(self._store, name)

    def commit(self, changes: Sequence[Change], *, partly: bool = False) -> list[Outcome]:
        """Make *changes* as the store does."""
        outcomes = self._store.commit(changes, partly=partly)
        self._slots.ended(changes, outcomes)
        return outcomes

    @property
    def store(self) -> Store:
        """The same, for those who ask for a store."""
        return cast("Store", self)


def limited(queue: Queue) -> bool:
    """Tell whether *queue* has limits at all."""
    dequeuing = queue.settings.dequeuing_settings
    return dequeuing.max_inflight_tasks > 0 or dequeuing.rate_limiting is not None
