"""The context object that Lambda gives a handler."""

import time
from dataclasses import dataclass, field
from uuid import uuid4


@dataclass(frozen=True, slots=True)
class InvocationContext:
    """The context of one call of *function_name*, which may take *timeout_seconds*."""

    function_name: str = "Api"
    timeout_seconds: int = 29
    aws_request_id: str = field(default_factory=lambda: str(uuid4()))
    memory_limit_in_mb: str = "512"
    _started: float = field(default_factory=time.monotonic)

    @property
    def invoked_function_arn(self) -> str:
        return f"arn:aws:lambda:us-east-1:000000000000:function:{self.function_name}"

    def get_remaining_time_in_millis(self) -> int:
        left = self.timeout_seconds - (time.monotonic() - self._started)
        return max(0, int(left * 1000))
