"""Headrace: a durable task queue on DynamoDB, serverless in the cloud and whole on one laptop.

What programs use is here, and loaded when it is first asked for: the Lambda functions that import
this package need none of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

__version__ = "0.1.0"

if TYPE_CHECKING:
    from headrace.client.aio import AsyncClient as AsyncClient
    from headrace.client.app import backoff as backoff
    from headrace.client.app.app import App as App
    from headrace.client.app.context import Context as Context
    from headrace.client.app.outcomes import Cancelled as Cancelled
    from headrace.client.app.outcomes import HardTimeLimit as HardTimeLimit
    from headrace.client.app.outcomes import Reject as Reject
    from headrace.client.app.outcomes import Retry as Retry
    from headrace.client.app.outcomes import Snooze as Snooze
    from headrace.client.app.outcomes import SoftTimeLimit as SoftTimeLimit
    from headrace.client.app.outcomes import Stopped as Stopped
    from headrace.client.chains import chain as chain
    from headrace.client.chains import chord as chord
    from headrace.client.chains import group as group
    from headrace.client.client import Client as Client
    from headrace.client.codec import Codec as Codec
    from headrace.client.codec import JsonCodec as JsonCodec
    from headrace.client.sending import Failure as Failure
    from headrace.client.sending import NewTask as NewTask
    from headrace.client.sending import Report as Report
    from headrace.client.sending import previous as previous
    from headrace.client.worker import logs as logs
    from headrace.client.worker.service import Observer as Observer
    from headrace.client.worker.telemetry import otel as otel
    from headrace.client.worker.telemetry.prometheus import PrometheusMetrics as PrometheusMetrics
    from headrace.client.worker.worker import Worker as Worker
    from headrace.client.workflow_runs import AsyncWorkflowRun as AsyncWorkflowRun
    from headrace.client.workflow_runs import WorkflowRun as WorkflowRun
    from headrace.client.workflows import Workflow as Workflow
    from headrace.domain import limits as limits
    from headrace.domain.errors import BatchExists as BatchExists
    from headrace.domain.errors import BatchFinished as BatchFinished
    from headrace.domain.errors import Conflict as Conflict
    from headrace.domain.errors import FieldError as FieldError
    from headrace.domain.errors import Finished as Finished
    from headrace.domain.errors import Forbidden as Forbidden
    from headrace.domain.errors import HeadraceError as HeadraceError
    from headrace.domain.errors import IdempotencyConflict as IdempotencyConflict
    from headrace.domain.errors import Inflight as Inflight
    from headrace.domain.errors import InvalidRequest as InvalidRequest
    from headrace.domain.errors import KeyExists as KeyExists
    from headrace.domain.errors import LeaseLost as LeaseLost
    from headrace.domain.errors import NotEnqueued as NotEnqueued
    from headrace.domain.errors import NotFound as NotFound
    from headrace.domain.errors import PayloadTooLarge as PayloadTooLarge
    from headrace.domain.errors import QueueExists as QueueExists
    from headrace.domain.errors import RateLimited as RateLimited
    from headrace.domain.errors import TaskDead as TaskDead
    from headrace.domain.errors import Unauthenticated as Unauthenticated
    from headrace.domain.errors import Unavailable as Unavailable
    from headrace.domain.errors import VersionMismatch as VersionMismatch
    from headrace.domain.retry import RetryStrategy as RetryStrategy
    from headrace.wire.base import Unreadable as Unreadable

_FROM: Final = {
    "App": "headrace.client.app.app",
    "AsyncClient": "headrace.client.aio",
    "AsyncWorkflowRun": "headrace.client.workflow_runs",
    "BatchExists": "headrace.domain.errors",
    "BatchFinished": "headrace.domain.errors",
    "Cancelled": "headrace.client.app.outcomes",
    "Client": "headrace.client.client",
    "Codec": "headrace.client.codec",
    "Conflict": "headrace.domain.errors",
    "Context": "headrace.client.app.context",
    "Failure": "headrace.client.sending",
    "FieldError": "headrace.domain.errors",
    "Finished": "headrace.domain.errors",
    "Forbidden": "headrace.domain.errors",
    "HardTimeLimit": "headrace.client.app.outcomes",
    "HeadraceError": "headrace.domain.errors",
    "IdempotencyConflict": "headrace.domain.errors",
    "Inflight": "headrace.domain.errors",
    "InvalidRequest": "headrace.domain.errors",
    "JsonCodec": "headrace.client.codec",
    "KeyExists": "headrace.domain.errors",
    "LeaseLost": "headrace.domain.errors",
    "NewTask": "headrace.client.sending",
    "NotEnqueued": "headrace.domain.errors",
    "NotFound": "headrace.domain.errors",
    "Observer": "headrace.client.worker.service",
    "PayloadTooLarge": "headrace.domain.errors",
    "QueueExists": "headrace.domain.errors",
    "RateLimited": "headrace.domain.errors",
    "Reject": "headrace.client.app.outcomes",
    "Report": "headrace.client.sending",
    "previous": "headrace.client.sending",
    "Retry": "headrace.client.app.outcomes",
    "RetryStrategy": "headrace.domain.retry",
    "Snooze": "headrace.client.app.outcomes",
    "SoftTimeLimit": "headrace.client.app.outcomes",
    "Stopped": "headrace.client.app.outcomes",
    "Unauthenticated": "headrace.domain.errors",
    "TaskDead": "headrace.domain.errors",
    "Unavailable": "headrace.domain.errors",
    "Unreadable": "headrace.wire.base",
    "VersionMismatch": "headrace.domain.errors",
    "Worker": "headrace.client.worker.worker",
    "Workflow": "headrace.client.workflows",
    "WorkflowRun": "headrace.client.workflow_runs",
    "chain": "headrace.client.chains",
    "chord": "headrace.client.chains",
    "group": "headrace.client.chains",
}
_MODULES: Final = {
    "backoff": "headrace.client.app.backoff",
    "limits": "headrace.domain.limits",
    "logs": "headrace.client.worker.logs",
}
_EXTRAS: Final = {  # what an import of everything cannot count on
    "PrometheusMetrics": ("prometheus", "prometheus_client"),
    "otel": ("otel", "opentelemetry"),
}

__all__ = ["__version__", *_FROM, *_MODULES]  # noqa: PLE0604 (names, all of them)


def __getattr__(name: str) -> Any:  # noqa: ANN401 (a class or a module)
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _EXTRAS:
        extra, package = _EXTRAS[name]
        with needing(package, f"headrace.{name}", extra):
            module = import_module(f"headrace.client.worker.telemetry.{extra}")
            return module if name == extra else getattr(module, name)
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)


@contextmanager
def needing(package: str, what: str, extra: str) -> Iterator[None]:
    """Raise ImportError that names *extra* if the block misses *package*, which *what* needs."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        message = f"{what} needs {package}: pip install 'headrace[{extra}]'"
        raise ImportError(message, name=package) from None


def __dir__() -> list[str]:
    return sorted([*__all__, *_EXTRAS])
