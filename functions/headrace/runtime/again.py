"""Running this function several times at once, each time with a part of its work."""

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Final, TypeAlias

from headrace.domain.errors import Unavailable

_log: Final = logging.getLogger(__name__)

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
        from headrace.store.functions import invoke  # noqa: PLC0415  botocore's, and rarely

        def invoked(event: Event) -> bool:
            try:
                invoke(function, event)
            except Unavailable as error:
                _log.warning("Not run again: %s", error)
                return False
            return True

        yield invoked
