"""The seam to the worker: what it gives an attempt, for how long, and where a task goes."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from headrace.client.app import checks
from headrace.client.app.checks import Duration
from headrace.domain.texts import amount

_BOUNDS = (0.001, 31_536_000)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds until a handler is asked to end, and until it is made to; None: never."""

    soft: float | None = None
    hard: float | None = None

    @classmethod
    def of(cls, soft_timeout: Duration | None, timeout: Duration | None) -> "Timeouts":
        """Check what was declared.  Raises InvalidRequest."""
        soft = checks.optional("soft_timeout", soft_timeout, _BOUNDS)
        hard = checks.optional("timeout", timeout, _BOUNDS)
        if soft is not None and hard is not None and soft >= hard:
            raise checks.wrong(
                "soft_timeout", f"must be shorter than timeout, {amount(hard, 'second')}"
            )
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
    def cancelled(self) -> bool:
        """Whether the lease is lost because the task was cancelled; True before Cancelled comes."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether the worker has asked the handler to end because it stops.

        True before Stopped is thrown into the handler.
        """
        ...

    @property
    def lease_expires_at(self) -> datetime:
        """The end of the lease as last heard of."""
        ...


@dataclass(frozen=True, slots=True)
class TaskRoute:
    """How a task is run: by which function, and within which time limits in seconds.

    With ``isolate`` it runs in a child process.  ``asked`` is the name in the payload, if the app
    has no function of that name.

    ``execute`` runs a ``sync`` route in a thread or process; ``execute_async`` runs an ``async``
    route in an asyncio task.
    """

    kind: Literal["sync", "async"]
    name: str
    soft_timeout: float | None = None
    hard_timeout: float | None = None
    isolate: bool = False
    asked: str | None = None

    @property
    def title(self) -> str:
        """The name in logs.  Metrics use ``name``, so that payloads cannot create new series."""
        return self.name if self.asked is None else self.asked
