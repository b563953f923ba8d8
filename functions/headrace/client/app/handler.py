"""A function that takes the raw payloads of a queue, whoever enqueued them."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.client.app.context import Context
from headrace.client.app.outcomes import Reject
from headrace.client.app.results import OnLargeResult
from headrace.client.app.signature import Signature, fitting
from headrace.client.app.timeouts import Timeouts
from headrace.domain.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class RawHandler:
    """What ``@app.handler`` knows of a function; ``parameter`` names the one for the payload."""

    function: Callable[..., Any]
    name: str
    queue: str
    timeouts: Timeouts
    on_large_result: OnLargeResult | None
    signature: Signature
    parameter: str | None
    is_async: bool

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str,
        queue: str,
        timeouts: Timeouts,
        on_large_result: OnLargeResult | None,
    ) -> "RawHandler":
        """Read the signature of *function*.  Raises TypeError unless it takes one payload."""
        signature = Signature.of(function)
        parameters = list(signature.hints)
        if len(parameters) > 1:
            raise TypeError(
                f"{signature} is given the payload as one argument, and takes {len(parameters)}"
            )
        return cls(
            function,
            name,
            queue,
            timeouts,
            on_large_result,
            signature,
            parameters[0] if parameters else None,
            inspect.iscoroutinefunction(function),
        )

    def invoke(self, ctx: Context, payload: Any) -> Any:  # noqa: ANN401 (any JSON value)
        """Call the function.  Raises Reject for a payload that does not fit its type hint."""
        args: dict[str, Any] = {}
        if self.parameter is not None:
            try:
                hint = self.signature.hints[self.parameter]
                args[self.parameter] = fitting("payload", payload, hint)
            except InvalidRequest as error:
                raise Reject(error.detail) from None
        if self.signature.context is not None:
            args[self.signature.context] = ctx
        return self.function(**args)
