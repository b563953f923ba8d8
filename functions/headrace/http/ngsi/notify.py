"""The endpoint to which an NGSI context broker sends notifications, as to QuantumLeap.

A notification is enqueued exactly as it came and answered immediately; workers parse it later.
FIWARE headers become tags. A service path that is longer than the value of a tag is also added to
the payload, as its last member.
"""

import json
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from headrace.domain.access import Permission
from headrace.domain.errors import FieldError, InvalidRequest, PayloadTooLarge
from headrace.domain.limits import (
    PAYLOAD_BYTES,
    RESERVED_TASK,
    SERVICE_PATH_BYTES,
    SERVICE_PATHS,
    TAG_VALUE_BYTES,
    reserved_task,
    utf8_bytes,
)
from headrace.domain.plan import TaskSpec
from headrace.http.fields import Examples, HeaderFields, TagValue, example, faultless
from headrace.http.rawjson import JsonText, object_text
from headrace.http.request import JSON, Reply, this_request
from headrace.http.routing import Routes
from headrace.runtime.wiring import current_service

QUEUE: Final = "ngsi.notify"
SERVICE_PATH: Final = "fiware-servicepath"
"""The name of the tag with the start of the header, and of the payload's member with all of it."""

routes: Final = Routes("NGSI")

NOTIFICATION: Final[Examples] = {
    "room": example(
        "What a context broker sends",
        {
            "subscriptionId": "5ce3dbb331dfe9b66df2d2c2",
            "data": [
                {
                    "id": "Room1",
                    "type": "Room",
                    "temperature": {"type": "Number", "value": 23.5, "metadata": {}},
                }
            ],
        },
    ),
}


def _service_path_fault(text: str) -> str | None:
    paths = text.split(",")
    if len(paths) > SERVICE_PATHS:
        return f"must have at most {SERVICE_PATHS} paths; it has {len(paths)}"
    longest = max(map(utf8_bytes, map(str.strip, paths)))
    if longest > SERVICE_PATH_BYTES:
        return f"must have paths of at most {SERVICE_PATH_BYTES} bytes; one has {longest}"
    return None


class FiwareHeaders(HeaderFields):
    """The headers by which notifications are kept apart."""

    service: TagValue | None = Field(default=None, alias="fiware-service")
    servicepath: Annotated[str, AfterValidator(faultless(_service_path_fault))] | None = Field(
        default=None, alias="fiware-servicepath"
    )
    correlator: TagValue | None = Field(default=None, alias="fiware-correlator")

    @property
    def long_path(self) -> str | None:
        """The service path, if it is longer than its tag."""
        path = self.servicepath
        return path if path and path != as_tag(path) else None

    def tags(self) -> dict[str, str]:
        """Return the headers as tags; an empty header is none."""
        sent = self.model_dump(by_alias=True)
        return {name: as_tag(text) for name, text in sorted(sent.items()) if text}


class NotificationHeaders(FiwareHeaders):
    """The headers of a notification."""

    tenant: TagValue | None = Field(default=None, alias="ngsild-tenant")
    time_index: TagValue | None = Field(default=None, alias="fiware-timeindex-attribute")


def as_tag(text: str) -> str:
    """Return the start of *text* that fits into the value of a tag."""
    return text.encode()[:TAG_VALUE_BYTES].decode(errors="ignore")


@routes.add(
    "POST",
    "/v2/notify",
    Permission.ENQUEUE,
    queue=QUEUE,
    responses={
        200: {
            "description": "The notification is in the queue.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
    description=f"`Fiware-ServicePath` is one path of up to {SERVICE_PATH_BYTES} bytes, or up to "
    f"{SERVICE_PATHS} paths with commas between. The tag has its first {TAG_VALUE_BYTES} bytes. If "
    f"it is longer, the payload has all of it as its last member, `{SERVICE_PATH}`.",
    more={
        "requestBody": {
            "required": True,
            "content": {
                JSON: {"schema": {"type": "object"}, "examples": NOTIFICATION},
            },
        }
    },
)
def notify(sent: NotificationHeaders) -> Reply:
    """Accept an NGSI notification.

    Works like QuantumLeap: any JSON object is enqueued into `ngsi.notify` exactly as it came, and
    answered immediately. FIWARE headers become tags of the same name.
    """
    payload = object_text(this_request().text())
    if sent.long_path is not None:
        payload = _with_member(payload, SERVICE_PATH, sent.long_path)
    payload = _within_limit(payload)
    if reserved_task(payload):
        raise InvalidRequest.of("task", RESERVED_TASK)
    current_service().tasks.enqueue(QUEUE, [TaskSpec(payload, tags=sent.tags())])
    return Reply("Notification successfully processed", content_type="text/plain")


def _with_member(payload: JsonText, name: str, value: str) -> JsonText:
    """Return the JSON object *payload* with one more member at its end."""
    others = payload[:-1].rstrip()
    comma = "" if others == "{" else ","
    return JsonText(f"{others}{comma}{json.dumps(name)}:{json.dumps(value)}}}")


def _within_limit(payload: JsonText) -> JsonText:
    size = utf8_bytes(payload)
    if size > PAYLOAD_BYTES:
        message = f"a notification must be at most {PAYLOAD_BYTES} bytes; it is {size}"
        raise PayloadTooLarge(message, errors=[FieldError("body", message)])
    return payload
