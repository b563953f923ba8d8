"""Where an NGSI context broker sends its notifications, as to QuantumLeap.

The notification is put into a queue exactly as it came and answered at once; workers make sense of
it later.  FIWARE headers become tags.  A service path that is longer than a tag's value is added
to the payload too, as its last member.
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
from headrace.http.routing import Answered, Header, Routes
from headrace.runtime.wiring import current_service

QUEUE: Final = "ngsi.notify"
SERVICE_PATH: Final = "fiware-servicepath"
"""The tag with the first bytes of the header, and the payload's member with a longer one."""

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
    """Return as much of *text*, from its beginning, as a tag's value may hold."""
    return text.encode()[:TAG_VALUE_BYTES].decode(errors="ignore")


@routes.add(
    "POST",
    "/v2/notify",
    Permission.ENQUEUE,
    queue=QUEUE,
    responses={
        200: {
            "description": "It is in the queue.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
    description=f"`Fiware-ServicePath` is one path of up to {SERVICE_PATH_BYTES} bytes, or up to "
    f"{SERVICE_PATHS} with commas between; the tag has its first {TAG_VALUE_BYTES} bytes, and of "
    f"a longer one the payload has the whole as its last member, `{SERVICE_PATH}`.",
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
) -> Answered:
    """Take an NGSI notification.

    As QuantumLeap does: any JSON object is put into the queue `ngsi.notify` exactly as it came
    and answered at once. FIWARE headers become tags of the same name.
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
    """Return the JSON object *payload* with another member at its end, all else as it came."""
    others = payload[:-1].rstrip()
    comma = "" if others == "{" else ","
    return JsonText(f"{others}{comma}{json.dumps(name)}:{json.dumps(value)}}}")


def _within_limit(payload: JsonText) -> JsonText:
    size = utf8_bytes(payload)
    if size > PAYLOAD_BYTES:
        message = f"a notification must be at most {PAYLOAD_BYTES} bytes; it is {size}"
        raise PayloadTooLarge(message, errors=[FieldError("body", message)])
    return payload
