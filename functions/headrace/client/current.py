"""Which attempt the running code is part of, and which trace, for what it logs and enqueues.

A context variable: async handlers, the asyncio tasks they make and ``asyncio.to_thread`` have it
too; a thread that a handler starts by itself has it if it is run in a copy of the context.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Final, Protocol, TypeVar

from headrace.domain import limits
from headrace.wire.tasks import LeasedTask

R = TypeVar("R")


class RunningAttempt(Protocol):
    """What is known of the attempt: its ``Context``, as far as logs and tracing ask for it."""

    name: str
    task: LeasedTask

    @property
    def tags(self) -> Mapping[str, str]: ...


_current: Final[ContextVar[RunningAttempt | None]] = ContextVar("headrace_attempt", default=None)


def current_attempt() -> RunningAttempt | None:
    """The attempt that this code is part of; None outside of handlers and middlewares."""
    return _current.get()


def within(ctx: RunningAttempt, run: Callable[[], R]) -> R:
    """Call *run* as a part of *ctx* and return its result.

    Changes of context variables end with the call, so that no later attempt sees them.
    """

    def set_and_run() -> R:
        _current.set(ctx)
        return run()

    return copy_context().run(set_and_run)


@contextmanager
def part_of(ctx: RunningAttempt) -> Iterator[None]:
    """Let the block be a part of *ctx*, where the context is the block's own already."""
    before = _current.set(ctx)
    try:
        yield
    finally:
        _current.reset(before)


TRACEPARENT: Final = "traceparent"
"""The tag for the trace that a new task belongs to (W3C Trace Context).

That is the span that is open where the task is enqueued, if the program uses OpenTelemetry; else,
in a handler, what the handler's own task carries: so a trace goes on through workers without it.
Nothing is imported for it, and a task that has the tag, or no room for it, stays as it is.
"""


def traced(tags: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return *tags* with the current trace, if there is one."""
    known = tags or {}
    if TRACEPARENT in known or len(known) >= limits.TAGS:
        return tags
    parent = _of_span() or _of_attempt()
    return tags if parent is None else {**known, TRACEPARENT: parent}


def traced_move(
    tags: Mapping[str, str] | None, before: Mapping[str, str]
) -> Mapping[str, str] | None:
    """The tags of a moved task that had those *before*; *tags* None keeps them.

    The span that moves it, where there is one, is what its next attempt follows.
    """
    if tags is not None:
        return traced(tags)
    without = {name: value for name, value in before.items() if name != TRACEPARENT}
    moved = traced(without)
    return None if moved in (None, before, without) else moved


def _of_span() -> str | None:
    get_current_span = getattr(sys.modules.get("opentelemetry.trace"), "get_current_span", None)
    if get_current_span is None:  # not loaded, so there is no span
        return None
    span = get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def _of_attempt() -> str | None:
    attempt = current_attempt()
    return None if attempt is None else attempt.tags.get(TRACEPARENT)
