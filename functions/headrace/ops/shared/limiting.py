"""What holds deliveries back: slots for tasks in flight, and tokens of a rate.

Queues without limits never come here.
"""

from dataclasses import dataclass

from headrace.domain.queue import Queue
from headrace.ops.shared.slots import Slots
from headrace.ops.shared.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Limiting:
    """The two limits that a queue may have."""

    slots: Slots
    tokens: Tokens

    def forget(self, queue: str) -> None:
        """Drop everything kept of the limits of a queue that is deleted."""
        self.tokens.forget(queue)
        self.slots.forget(queue)


def limited(queue: Queue) -> bool:
    """Tell whether *queue* has limits at all."""
    dequeuing = queue.settings.dequeuing_settings
    return dequeuing.max_inflight_tasks > 0 or dequeuing.rate_limiting is not None
