"""Headrace: a durable task queue on DynamoDB, serverless in the cloud and whole on one laptop.

What programs use is here, and loaded when it is first asked for: the Lambda functions that import
this package need none of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

__version__ = "0.1.0"

if TYPE_CHECKING:
    from headrace.client.aio import AsyncClient as AsyncClient
    from headrace.client.app.app import App as App
    from headrace.client.app.context import Context as Context
    from headrace.client.app.outcomes import Reject as Reject
    from headrace.client.app.outcomes import Retry as Retry
    from headrace.client.client import Client as Client
    from headrace.client.codec import Codec as Codec
    from headrace.client.codec import JsonCodec as JsonCodec
    from headrace.client.sending import Failure as Failure
    from headrace.client.sending import NewTask as NewTask
    from headrace.client.sending import Report as Report
    from headrace.client.worker.worker import Worker as Worker
    from headrace.domain.retry import RetryStrategy as RetryStrategy

_FROM: Final = {
    "App": "headrace.client.app.app",
    "AsyncClient": "headrace.client.aio",
    "Client": "headrace.client.client",
    "Codec": "headrace.client.codec",
    "Context": "headrace.client.app.context",
    "Failure": "headrace.client.sending",
    "JsonCodec": "headrace.client.codec",
    "NewTask": "headrace.client.sending",
    "Reject": "headrace.client.app.outcomes",
    "Report": "headrace.client.sending",
    "Retry": "headrace.client.app.outcomes",
    "RetryStrategy": "headrace.domain.retry",
    "Worker": "headrace.client.worker.worker",
}

__all__ = ["__version__", *_FROM]  # noqa: PLE0604 (names, all of them)


def __getattr__(name: str) -> Any:  # noqa: ANN401 (a class)
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
