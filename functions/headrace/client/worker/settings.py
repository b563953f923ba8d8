"""The settings of a worker, checked."""

import math
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from headrace.domain import limits
from headrace.domain.errors import InvalidRequest

Queues: TypeAlias = Sequence[str] | Mapping[str, float]

THREADS: Final = 10
"""Tasks at a time by default: most tasks wait for a network."""

_LONGEST_PREFETCH: Final = 1000

_CHILD_START_SECONDS: Final = (0.1, 3600.0)

_wrong: Final = InvalidRequest.of


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Which queues, how many tasks at a time, and how to end.  Durations are seconds.

    ``queues`` maps names to weights, in the order given; ``prefetch`` None adapts to the pace of
    the tasks; ``keepalive`` None leaves the length of leases to the tasks and queues;
    ``group_lease`` puts all tasks under one.  ``sync`` brings queues and schedules to what the app
    declares before the first task, ``prune`` removes schedules that it declares no more.
    """

    queues: Mapping[str, float]
    strict: bool = False
    concurrency: int
    isolate: bool = False
    prefetch: int | None = None
    name: str
    shutdown_timeout: float = 30.0
    child_start_timeout: float = 30.0
    keepalive: float | None = None
    group_lease: bool = False
    app_path: str | None = None
    sync: bool = False
    prune: bool = False

    @classmethod
    def of(  # noqa: PLR0913 (each a keyword)
        cls,
        queues: Queues,
        *,
        strict: bool = False,
        concurrency: int | None = None,
        isolate: bool = False,
        prefetch: int | None = None,
        name: str | None = None,
        shutdown_timeout: float = 30.0,
        child_start_timeout: float = 30.0,
        keepalive: float | None = None,
        group_lease: bool = False,
        app_path: str | None = None,
        sync: bool = False,
        prune: bool = False,
    ) -> "WorkerSettings":
        """Check what is given.  Raises InvalidRequest naming the setting and its limit."""
        if concurrency is None:
            concurrency = (os.cpu_count() or 1) if isolate else THREADS
        name = name or f"{socket.gethostname()}:{os.getpid()}"
        _within("concurrency", concurrency, limits.WORKER_CONCURRENCY, whole=True)
        _within("shutdown_timeout", shutdown_timeout, (0, math.inf))
        _within("child_start_timeout", child_start_timeout, _CHILD_START_SECONDS)
        if prefetch is not None:
            _within("prefetch", prefetch, (0, _LONGEST_PREFETCH), whole=True)
        if keepalive is not None:
            _within("keepalive", keepalive, limits.KEEPALIVE_SECONDS)
        if isolate and sys.platform == "win32":
            raise _wrong("isolate", "needs signals and process groups, which Windows does not have")
        if prune and not sync:
            raise _wrong("prune", "needs sync")
        fault = limits.text_fault(name, limits.WORKER_BYTES, 1)
        if fault:
            raise _wrong("name", fault)
        return cls(
            queues=_weights(queues, strict=strict),
            strict=strict,
            concurrency=concurrency,
            isolate=isolate,
            prefetch=prefetch,
            name=name,
            shutdown_timeout=shutdown_timeout,
            child_start_timeout=child_start_timeout,
            keepalive=keepalive,
            group_lease=group_lease,
            app_path=app_path,
            sync=sync,
            prune=prune,
        )


def _weights(queues: Queues, *, strict: bool) -> Mapping[str, float]:
    if isinstance(queues, str):
        raise _wrong("queues", f"must be a list of names or a mapping to weights, not {queues!r}")
    least, most = limits.WORKER_QUEUES
    if not least <= len(queues) <= most:
        what = f"must be {least} to {most} names; there are {len(queues)}"
        if not queues:
            what += ": name some, or import the modules that declare the app's tasks"
        raise _wrong("queues", what)
    if not isinstance(queues, Mapping):
        return dict.fromkeys(queues, 1.0)
    if strict:
        raise _wrong(
            "strict", "and weights exclude each other: give queues as a list, first one first"
        )
    for queue, weight in queues.items():
        if not 0 < weight < math.inf:
            raise _wrong(f"queues.{queue}", f"must have a weight above 0, not {weight!r}")
    return dict(queues)


def _within(field: str, value: object, bounds: limits.Bounds, *, whole: bool = False) -> None:
    fault = limits.number_fault(value, bounds, whole=whole)
    if fault:
        raise _wrong(field, fault)
