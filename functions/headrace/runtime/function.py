"""Parts of every Lambda function: its start, headers and further runs."""

import gc
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Final, TypeAlias

from headrace.domain.errors import Unavailable
from headrace.safe_logging import safe_logger


@contextmanager
def starting() -> Iterator[None]:
    """Return a block for imports, without garbage collection.

    Imported objects stay.  Collecting among them takes a seventh of a start, and later a part of
    some requests.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


ALWAYS: Final[Mapping[str, str]] = {
    "Strict-Transport-Security": "max-age=31536000",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every answer of the API, the console and the gateway."""

_log: Final = safe_logger(__name__)

Event: TypeAlias = Mapping[str, Any]
Again: TypeAlias = Callable[[Event], bool]
"""Runs the function with another event; returns whether it could be started."""


@contextmanager
def runs_again(function: str | None, run: Callable[[Event], object]) -> Iterator[Again]:
    """Return a way to run a function again while it runs.

    In Lambda this invokes *function*.  Elsewhere (None) it calls *run* in another thread, and the
    end of the block waits for that.
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
