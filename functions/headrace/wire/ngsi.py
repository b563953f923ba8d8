"""Notifications in answers, in the shapes of QuantumLeap's management API."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.wire.base import Answer


class NotificationRuntime(Answer, frozen=True, kw_only=True):
    """How it is with a notification, in QuantumLeap's words."""

    task_id: str
    task_type: str
    status: Literal["pending", "succeeded", "failed"]
    retries_left: Annotated[int | None, Meta(description="null: there are none at all.")]
    errors: Annotated[list[str], Meta(description="Of every attempt that failed, in order.")]


class NotificationInput(Answer, frozen=True, kw_only=True):
    """What came with a notification."""

    fiware_service: str | None
    fiware_service_path: str | None
    fiware_correlator: str | None
    payload: Annotated[
        msgspec.Raw,
        Meta(
            description="Its `data`, exactly as it came in.",
            extra_json_schema={"type": "array", "items": {}},
        ),
    ]


class Notification(Answer, frozen=True, kw_only=True):
    """A notification in the queue, as QuantumLeap shows it."""

    runtime: NotificationRuntime
    input: NotificationInput
