"""The endpoint to which an NGSI context broker sends notifications, as to QuantumLeap.

A notification is enqueued exactly as it came and answered immediately; workers parse it later.
FIWARE headers become tags. A service path that is longer than the value of a tag is also added to
the payload, as its last member.
"""

import json
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator

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
from headrace.http.fields import Examples, TagValue, example, faultless
from headrace.http.rawjson import JsonText, object_text
from headrace.http.request import JSON, Reply, this_request
from headrace.http.routing import Header, Routes
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


ServicePath: TypeAlias = Annotated[str, AfterValidator(faultless(_service_path_fault))]


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
def notify(
    service: Annotated[TagValue | None, Header("fiware-service")] = None,
    servicepath: Annotated[ServicePath | None, Header(SERVICE_PATH)] = None,
    tenant: Annotated[TagValue | None, Header("ngsild-tenant")] = None,
    correlator: Annotated[TagValue | None, Header("fiware-correlator")] = None,
    time_index: Annotated[TagValue | None, Header("fiware-timeindex-attribute")] = None,
) -> Reply:
    """Accept an NGSI notification.

    Works like QuantumLeap: any JSON object is enqueued into `ngsi.notify` exactly as it came, and
    answered immediately. FIWARE headers become tags of the same name.
    """
    sent = {
        "fiware-service": service,
        SERVICE_PATH: as_tag(servicepath or ""),
        "ngsild-tenant": tenant,
        "fiware-correlator": correlator,
        "fiware-timeindex-attribute": time_index,
    }
    payload = object_text(this_request().text())
    if servicepath and servicepath != sent[SERVICE_PATH]:
        payload = _with_member(payload, SERVICE_PATH, servicepath)
    payload = _within_limit(payload)
    if reserved_task(payload):
        raise InvalidRequest.of("task", RESERVED_TASK)
    tags = {name: value for name, value in sent.items() if value}
    current_service().tasks.enqueue(QUEUE, [TaskSpec(payload, tags=tags)])
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
