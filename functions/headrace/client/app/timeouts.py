"""How long an attempt may take."""

from dataclasses import dataclass

from headrace.client.app import checks
from headrace.client.app.checks import Duration

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
