"""The seam to the worker: what it gives an attempt, for how long, and what it asks of an app."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from headrace.client.app import checks
from headrace.client.app.checks import Duration
from headrace.client.sending import Report
from headrace.wire.tasks import LeasedTask

_BOUNDS = (0.001, 31_536_000)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds until a handler is asked to end, and until it is made to; None: never."""

    soft: float | None = None
    hard: float | None = None

    @classmethod
    def of(cls, soft_timeout: Duration | None, timeout: Duration | None) -> "Timeouts":
        """Check what was declared.  Raises InvalidRequest."""
        soft = (
            None if soft_timeout is None else checks.seconds("soft_timeout", soft_timeout, _BOUNDS)
        )
        hard = None if timeout is None else checks.seconds("timeout", timeout, _BOUNDS)
        if soft is not None and hard is not None and soft >= hard:
            raise checks.wrong("soft_timeout", f"must be shorter than timeout, {hard} seconds")
        return cls(soft, hard)


class AttemptControl(Protocol):
    """The worker's side of each attempt; used from the handler's thread or loop."""

    def progress(self, value: object) -> None:
        """Have *value* sent with a heartbeat soon; does not wait for the network."""
        ...

    @property
    def lost(self) -> bool:
        """Whether the lease is over: whatever is reported now changes nothing.

        True before LeaseLost is thrown into the handler.
        """
        ...

    @property
    def lease_expires_at(self) -> datetime:
        """The end of the lease as last heard of."""
        ...


@dataclass(frozen=True, slots=True)
class TaskRoute:
    """Where a task goes: how it is run, under which name, and its time limits in seconds.

    A ``sync`` route is run by ``execute`` in a thread or process, an ``async`` one by
    ``execute_async`` in an asyncio task of its own.
    """

    kind: Literal["sync", "async"]
    name: str
    soft_timeout: float | None = None
    hard_timeout: float | None = None


class Executor(Protocol):
    """The interface of an app that the worker uses."""

    def route(self, task: LeasedTask) -> TaskRoute:
        """The route of *task*.  Raises nothing: an unknown one fails when it is executed."""
        ...

    def execute(self, task: LeasedTask, control: AttemptControl) -> Report | None:
        """Run a task of a sync route and return its final report; None: the lease is lost.

        Raises no Exception.  HardTimeLimit, Stopped or LeaseLost thrown into this thread become
        the report; thrown when the handler has ended already they may come out.  A
        KeyboardInterrupt in the main thread goes through: there a person wants to stop.
        """
        ...

    async def execute_async(self, task: LeasedTask, control: AttemptControl) -> Report | None:
        """Run a task of any route, likewise.

        To interrupt it, cancel its asyncio task with the reason: ``task.cancel(HardTimeLimit())``,
        ``SoftTimeLimit()``, ``Stopped()``, ``LeaseLost(…)``.  Without a reason it is Stopped.
        """
        ...
