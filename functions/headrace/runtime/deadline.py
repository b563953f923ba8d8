"""Answering in time: what a function may take of the time that Lambda gives it.

Timeouts nest.  A request to the table takes at most CALL_SECONDS; none begins that could take
longer than the call has left; the function answers before Lambda ends it, and Lambda before API
Gateway's 29 seconds.  So a slow table is a 503 of ours, which says when to try again.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from headrace.store.base import CALL_SECONDS, ends_within

ANSWER_SECONDS: Final = 2.0
"""Kept of a call's time for what comes after the table's last answer, or its last refusal."""


class Timed(Protocol):
    """What is asked of Lambda's context."""

    def get_remaining_time_in_millis(self) -> int:
        """Return how long the call may still take."""


def in_time(context: Timed) -> AbstractContextManager[None]:
    """Return a block whose requests to the table leave time to answer.

    Whoever stands in for Lambda without ending calls may say that no time is left: then there is no
    end, only nothing is waited for.
    """
    left = context.get_remaining_time_in_millis() / 1000
    return ends_within(left - ANSWER_SECONDS) if left > 0 else nullcontext()


def time_to_wait(context: Timed) -> float:
    """Return for how many seconds a call may wait, and still ask the table once more then."""
    left = context.get_remaining_time_in_millis() / 1000
    return max(0.0, left - ANSWER_SECONDS - CALL_SECONDS)
