"""What each function does: how it starts, answers in time, with which headers, and runs again.

Timeouts nest.  A request to the table takes at most CALL_SECONDS; none begins that could take
longer than the call has left; the function answers before Lambda ends it, and Lambda before API
Gateway's 29 seconds.  So a slow table is a 503 of ours, which says when to try again.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from typing import Any, Final, Protocol, TypeAlias

from headrace.domain.errors import Unavailable
from headrace.safe_logging import safe_logger
from headrace.store.call_scope import CALL_SECONDS, ends_within


@contextmanager
def starting() -> Iterator[None]:
    """Return a block for imports: all that they make stays, so nobody looks for garbage among it.

    Python would, again and again: a seventh of a start, and later now and then a request.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


ALWAYS: Final[Mapping[str, str]] = {
    "Strict-Transport-Security": "max-age=31536000",  # browsers heed it over TLS alone
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
"""Headers that every answer has: of the API, of the console, of the gateway before them."""

ANSWER_SECONDS: Final = 2.0
"""Kept of a call's time for what comes after the table's last answer, or its last refusal."""


class Timed(Protocol):
    """What is asked of Lambda's context."""

    def get_remaining_time_in_millis(self) -> int:
        """Return how long the call may still take."""


def in_time(context: Timed) -> AbstractContextManager[object]:
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


def client_gone(context: object) -> Callable[[], bool]:
    """Return what tells that the client of a call hung up. On Lambda it never does."""
    found: Callable[[], bool] = getattr(context, "client_gone", _never)
    return found


def _never() -> bool:
    return False


_log: Final = safe_logger(__name__)

Event: TypeAlias = Mapping[str, Any]
Again: TypeAlias = Callable[[Event], bool]
"""Runs the function with another event; tells whether that could be done."""


@contextmanager
def runs_again(function: str | None, run: Callable[[Event], object]) -> Iterator[Again]:
    """Return a way to run a function again while it runs.

    In Lambda that is an invocation of *function*; elsewhere (None) *run* is called in a thread of
    its own, and the block does not end before it.
    """
    if function is None:
        with ThreadPoolExecutor(thread_name_prefix="again") as pool:

            def in_a_thread(event: Event) -> bool:
                started.append(pool.submit(copy_context().run, run, event))
                return True

            started: list[Any] = []
            yield in_a_thread
        for one in started:
            one.result()
    else:
        from headrace.store.services import invoke  # noqa: PLC0415  botocore's, and rarely

        def invoked(event: Event) -> bool:
            try:
                invoke(function, event)
            except Unavailable as error:
                _log.warning("Not run again: %s", error)
                return False
            return True

        yield invoked
