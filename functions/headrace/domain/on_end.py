"""Webhooks on end: whoever wants to know how the tasks of a queue end names another queue for it.

Each end there becomes a task here, made by whoever records ends, with an id that this very end
always gives: so often as it is made, it is there once.  Such tasks say what they are, and their
own ends are told to nobody.
"""

from dataclasses import dataclass
from typing import Final

from headrace.domain.task import State

TYPES: Final = {State.SUCCEEDED: "task.succeeded", State.DEAD: "task.dead"}
"""The ``type`` of a webhook for each state that a task may end in."""


@dataclass(frozen=True, slots=True)
class OnEnd:
    """The ``queue`` that is told of tasks which end in one of ``states``.

    None is who was told before: where it is changed by somebody who may not know of that queue.
    """

    queue: str | None
    states: tuple[State, ...] = tuple(TYPES)

    def tells_no_more_than(self, before: "OnEnd | None") -> bool:
        """Return whether *before* already creates every task that this setting creates."""
        return before is not None and set(self.states) <= set(before.states)
