"""Webhooks on end: a queue may name another queue, which gets a task for each task that ends.

The id of such a task is derived from the end, so it is made once.  Their own ends create nothing.
"""

from dataclasses import dataclass
from typing import Final

from headrace.domain.task import State

TYPES: Final = {State.SUCCEEDED: "task.succeeded", State.DEAD: "task.dead"}
"""The ``type`` of a webhook for each state that a task may end in."""


@dataclass(frozen=True, slots=True)
class OnEnd:
    """The ``queue`` that is notified of tasks that end in one of ``states``.

    None keeps the queue of before, for a change by a key that may not see that queue.
    """

    queue: str | None
    states: tuple[State, ...] = tuple(TYPES)

    def tells_no_more_than(self, before: "OnEnd | None") -> bool:
        """Return whether *before* already creates every task that this setting creates."""
        return before is not None and set(self.states) <= set(before.states)
