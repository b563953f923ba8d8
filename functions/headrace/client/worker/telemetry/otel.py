"""OpenTelemetry spans around attempts, in the trace of who enqueued the task.

Needs ``headrace[otel]``.  The trace travels by itself, in the task's tag ``traceparent``::

    trace(app)                                         # in the module of the app
"""

from collections.abc import Iterator
from typing import Final

from opentelemetry import trace as api
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headrace.client.app.app import App
from headrace.client.app.context import Context
from headrace.client.current import TRACEPARENT

_propagator: Final = TraceContextTextMapPropagator()


def trace(app: App, *, provider: api.TracerProvider | None = None) -> None:
    """Put a span named after the task around every attempt of *app*.

    *provider* None is the global one.
    Attempts that fail are marked so, with the exception, unless the app's codec is private: then
    only its type is shown.
    """
    tracer = api.get_tracer("headrace", tracer_provider=provider)

    @app.middleware
    def span(ctx: Context) -> Iterator[None]:
        open_ = not app.codec.private
        with tracer.start_as_current_span(
            ctx.name,
            context=_propagator.extract({TRACEPARENT: ctx.tags.get(TRACEPARENT, "")}),
            kind=api.SpanKind.CONSUMER,
            attributes={
                "messaging.system": "headrace",
                "messaging.operation.type": "process",
                "messaging.destination.name": ctx.queue,
                "messaging.message.id": ctx.id,
                "headrace.attempt": ctx.attempt,
                "headrace.task": ctx.name,
            },
            record_exception=open_,
            set_status_on_exception=open_,
        ) as current:
            try:
                yield
            except BaseException as error:
                current.set_attribute("error.type", type(error).__qualname__)
                if not open_ or not isinstance(error, Exception):
                    current.set_status(api.StatusCode.ERROR)
                raise
