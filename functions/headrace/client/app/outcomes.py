"""How an attempt may end other than by returning: what handlers raise, and what is thrown at them.

Handlers raise `Retry` and `Reject`.  The worker throws the limits and `Stopped` into a running
handler: into a thread as they are; an asyncio task is cancelled, and the reason is the first
argument of its ``CancelledError``.
"""

from headrace.client.app import checks
from headrace.client.app.checks import Duration
from headrace.domain import limits


class Retry(Exception):
    """Raised by a handler: this attempt failed, try again later.

    It counts as a failed attempt.  ``delay`` (seconds or timedelta) takes the place of the retry
    strategy's wait.  Raises InvalidRequest for a delay over the limit.
    """

    def __init__(self, message: str = "", *, delay: Duration | None = None) -> None:
        super().__init__(message)
        self.delay_in_seconds = (
            None if delay is None else checks.seconds("delay", delay, limits.DELAY_SECONDS)
        )


class Reject(Exception):
    """Raised by a handler: never try this task again; it is dead at once, as ``rejected``."""


class UnknownTask(Exception):
    """The payload names no task that this app knows, and its queue has no handler."""


class SoftTimeLimit(Exception):
    """Thrown when the soft time limit is over: the handler may catch it, tidy up and end."""


class HardTimeLimit(BaseException):
    """Thrown when the hard time limit is over: the attempt has failed.

    No subclass of Exception, so that ``except Exception`` in a handler does not swallow it.
    """


class Stopped(BaseException):
    """Thrown when the worker stops: the task is released, which costs it no attempt."""
