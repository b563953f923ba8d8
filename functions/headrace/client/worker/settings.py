"""The settings of a worker, checked."""

import math
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypedDict, Unpack

from headrace.client.options import unknown
from headrace.domain import limits
from headrace.domain.errors import InvalidRequest

Queues: TypeAlias = Sequence[str] | Mapping[str, float]

THREADS: Final = 10
"""Tasks at a time by default: most tasks wait for a network."""

_BOUNDS: Final[Mapping[str, tuple[limits.Bounds, bool]]] = {  # and whether it is a whole number
    "concurrency": (limits.WORKER_CONCURRENCY, True),
    "shutdown_timeout": ((0, math.inf), False),
    "child_start_timeout": ((0.1, 3600.0), False),
    "prefetch": ((0, 1000), True),
    "lease_seconds": (limits.KEEPALIVE_SECONDS, False),
    "max_tasks": ((1, math.inf), True),
    "max_memory": ((1, math.inf), False),
}

_wrong: Final = InvalidRequest.of


class WorkerOptions(TypedDict, total=False):
    """The options of a `Worker`; durations are seconds.

    ``queues``: names, or a mapping of names to weights; the app's own by default.
    ``strict``: take from queues in their order, from a later one only while those before are empty.
    ``concurrency``: tasks at a time; 10, or one for each processor with ``isolate``.
    ``isolate``: run each task in a child process, which can be killed.
    ``prefetch``: tasks to hold beyond those that run; None: what starts within half a second.
    ``name``: the name that operators see; host and process by default.
    ``version``: the version of the program, for operators.
    ``shutdown_timeout``: how long running tasks may go on after a stop.
    ``child_start_timeout``: how long a child process may take to load the app.
    ``lease_seconds``: how long leases last between two heartbeats; the task's own by default.
    ``max_tasks``, ``max_memory``: end the worker after that many tasks, or when its process takes
    more than that many MB, so that a process manager starts a new one.
    ``sync``: bring queues and schedules to what the app declares, before the first task.
    ``prune``: with ``sync``, remove the schedules that the app has made and declares no more.
    ``app_path``: ``module:name`` of the app, for child processes; found in the modules by default.
    """

    queues: Queues | None
    strict: bool
    concurrency: int | None
    isolate: bool
    prefetch: int | None
    name: str | None
    version: str
    shutdown_timeout: float
    child_start_timeout: float
    lease_seconds: float | None
    max_tasks: int | None
    max_memory: float | None
    sync: bool
    prune: bool
    app_path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The options of a worker with their defaults; ``queues`` maps names to weights."""

    queues: Mapping[str, float]
    concurrency: int
    name: str
    strict: bool = False
    isolate: bool = False
    prefetch: int | None = None
    version: str = ""
    shutdown_timeout: float = 30.0
    child_start_timeout: float = 30.0
    lease_seconds: float | None = None
    max_tasks: int | None = None
    max_memory: float | None = None
    sync: bool = False
    prune: bool = False
    app_path: str | None = None

    @classmethod
    def of(cls, app_queues: Sequence[str], /, **options: Unpack[WorkerOptions]) -> "WorkerSettings":
        """Return checked settings.

        Raises InvalidRequest naming the option and its limit, TypeError for an unknown one.
        """
        given: dict[str, Any] = {**options}
        for name in given.keys() - WorkerOptions.__annotations__.keys():
            raise TypeError(unknown(name, "Worker", [*WorkerOptions.__annotations__]))
        isolate = given.get("isolate", False)
        named = given.pop("queues", None)
        given["queues"] = _weights(
            app_queues if named is None else named, strict=given.get("strict", False)
        )
        if given.get("concurrency") is None:
            given["concurrency"] = (os.cpu_count() or 1) if isolate else THREADS
        given["name"] = given.get("name") or f"{socket.gethostname()}:{os.getpid()}"
        for field, (bounds, whole) in _BOUNDS.items():
            value = given.get(field)
            if value is not None and (fault := limits.number_fault(value, bounds, whole=whole)):
                raise _wrong(field, fault)
        if given.get("prune") and not given.get("sync"):
            raise _wrong("prune", "needs sync")
        if fault := limits.text_fault(given["name"], limits.WORKER_BYTES, 1):
            raise _wrong("name", fault)
        return cls(**given)


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
