"""Which attempt the running code is part of, for what it logs and enqueues.

A context variable: async handlers, the asyncio tasks they make and ``asyncio.to_thread`` have it
too; a thread that a handler starts by itself has it if it is run in a copy of the context.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Final, Protocol, TypeVar

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
    """Call *run* and return its result, called as a part of *ctx*.

    What it does to context variables ends with it, so no attempt sees those of the one before.
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
