"""Parts of every Lambda function: its start, headers, further runs, and metrics.

Metrics are lines of the log in CloudWatch's embedded metric format: a few numbers of the deployment
as a whole.  The numbers of each queue are only in the API, because CloudWatch charges for every
metric and month.
"""

import gc
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias

from headrace.domain.errors import Unavailable
from headrace.safe_logging import safe_logger

if TYPE_CHECKING:
    from headrace.domain.transitions import Event as TaskEvent


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


# ------------------------------------------------------------------------------------------ metrics

NAMESPACE: Final = "Headrace"
DIMENSION: Final = "Stack"

COUNT: Final = "Count"
SECONDS: Final = "Seconds"

Measured = Mapping[str, tuple[float, str]]
"""Values by name, each with its unit."""


def emit(stack: str | None, measured: Measured, now: datetime, out: TextIO | None = None) -> None:
    """Write *measured* as metrics of *stack*; without a stack or a value, write nothing."""
    if stack is None or not measured:
        return
    metrics = [{"Name": name, "Unit": unit} for name, (_, unit) in measured.items()]
    directive = {"Namespace": NAMESPACE, "Dimensions": [[DIMENSION]], "Metrics": metrics}
    line = {
        "_aws": {"Timestamp": int(now.timestamp() * 1000), "CloudWatchMetrics": [directive]},
        DIMENSION: stack,
        **{name: value for name, (value, _) in measured.items()},
    }
    print(json.dumps(line), file=out or sys.stdout, flush=True)


def of_reaper(reaped: Mapping[str, float]) -> Measured:
    """Return the metrics of a pass of the reaper.

    A pass that has not seen every queue leaves out the age of the oldest task.
    """
    taken_back = {"LeasesLapsed": (reaped["retried"] + reaped["dead_lettered"], COUNT)}
    if reaped["throttled"] or reaped["unseen"]:
        return taken_back
    return {**taken_back, "OldestReadySeconds": (reaped["oldest_ready_seconds"], SECONDS)}


def of_dispatcher(backing_off: int) -> Measured:
    """Return the metrics of the dispatcher: the number of targets that ask for fewer requests."""
    return {"TargetsBackingOff": (backing_off, COUNT)}


def of_recorder(events: Mapping["TaskEvent", int]) -> Measured:
    """Return the metrics of a batch of the recorder: the number of each event."""
    return {event.capitalize(): (number, COUNT) for event, number in events.items()}
