"""What sends to targets, as this deployment has it; and one dispatcher run with it."""

import threading
from collections.abc import Callable
from typing import Final

from headrace.push.running import PushLoop
from headrace.push.sending import CallFunction, PushSender, TargetSender
from headrace.runtime.wiring import UseCases

LINGER_SECONDS: Final = 3.0
"""How long a dispatcher stays with nothing to do: longer than the second that one start is for."""


def sender_of(use: UseCases) -> PushSender:
    """Return what sends for one thread."""
    return TargetSender(use.settings.push.hosts, use.now, call_function=_functions(use))


def dispatcher_of(
    use: UseCases,
    queue: str,
    number: int,
    *,
    time_left: Callable[[], float] = lambda: float("inf"),
    stopping: threading.Event | None = None,
    wait_seconds: float = 0.0,
) -> PushLoop | None:
    """Return the dispatcher of one seat, which is taken; None where it is another's.

    Raises Unavailable.
    """
    run = use.push.begin(queue, number)
    if run is None:
        return None
    return PushLoop(
        run,
        lambda: sender_of(use),
        lambda: use.push.seconds_to_work(queue),
        linger=LINGER_SECONDS,
        wait_seconds=wait_seconds,
        time_left=time_left,
        stopping=stopping or threading.Event(),
    )


def _functions(use: UseCases) -> CallFunction | None:
    """Return what calls Lambda functions, where the deployment allows any."""
    if not use.settings.push.functions:
        return None
    try:
        from headrace.store.services import call_function  # noqa: PLC0415  AWS's, if it is there
    except ImportError:
        return None
    return call_function
