"""How workflows are made of batches: the ids of their parts and of their tasks.

The *whole* is a batch of all steps.  A step that waits is made by a batch that stands within the
whole, a *part* of it: its members are the steps that are waited for, its callback is the step.
A task is in four batches at most.  A step is in the whole, and so in three parts: where more than
three steps wait for one, *relays* stand between, which do nothing: callbacks of parts that are
members of up to four other parts, and not of the whole.
"""

from collections.abc import Callable, Iterable
from typing import Final

from headrace.domain.batch import Callback

WORKFLOW_TAG: Final = "workflow"
STEP_TAG: Final = "step"
"""The tags that hold the ids of a step's workflow, and the step's name."""


def relay_name(number: int) -> str:
    """Return the name of a relay of a workflow; no step has one that begins so."""
    return f"-{number}"


def is_relay(name: str) -> bool:
    """Return whether *name* is that of a relay."""
    return name.startswith("-")


def part_id(whole: str, step: str) -> str:
    """Return the id of the batch whose callback is *step* of the workflow *whole*."""
    return f"{whole}-{step}"


def root_id(whole: str, place: int) -> str:
    """Return the id of the task of the first step at *place*."""
    return f"{whole}-{place}"


def part_of(
    batch_id: str, callbacks: Iterable[Callback], whole_of: Callable[[str], str | None]
) -> str | None:
    """Return the batch that a new one stands within, as a part of it; None for none.

    That is one that a callback of it is a member of, and with whose id its own begins; for the part
    of a relay the whole of a part that the relay is in, by *whole_of*.
    """
    parents = sorted({id_ for one in callbacks for id_ in one.new.batches}, key=len)
    for parent in parents:
        if batch_id.startswith(part_id(parent, "")):
            return parent
    wholes = (whole_of(parent) for parent in parents)
    return next((one for one in wholes if one and batch_id.startswith(part_id(one, ""))), None)
