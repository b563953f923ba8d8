"""Where an NGSI context broker sends its notifications, as to QuantumLeap.

The notification is put into a queue exactly as it came and answered at once; workers make sense of
it later.  What the FIWARE headers say is kept as tags.
"""

from typing import Annotated, Final

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Header

from headrace.domain.errors import FieldError, PayloadTooLarge
from headrace.domain.limits import PAYLOAD_BYTES, utf8_bytes
from headrace.domain.plan import TaskSpec
from headrace.http.fields import Examples, TagValue, example
from headrace.http.rawjson import JsonText, object_text
from headrace.http.routing import JSON, Answered, NounRouter
from headrace.runtime.wiring import use_cases

QUEUE: Final = "ngsi.notify"
router: Final = NounRouter("NGSI")

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


@router.post(
    "/v2/notify",
    summary="Take an NGSI notification",
    description=(
        f"As QuantumLeap does: any JSON object is put into the queue `{QUEUE}` exactly as it came "
        "and answered at once. FIWARE headers become tags of the same name."
    ),
    operation_id="notify",
    responses={
        200: {
            "description": "It is in the queue.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
    openapi_extensions={
        "requestBody": {
            "required": True,
            "content": {
                JSON: {"schema": {"type": "object"}, "examples": NOTIFICATION},
            },
        }
    },
)
def notify(
    service: Annotated[TagValue | None, Header(alias="fiware-service")] = None,
    servicepath: Annotated[TagValue | None, Header(alias="fiware-servicepath")] = None,
    correlator: Annotated[TagValue | None, Header(alias="fiware-correlator")] = None,
    time_index: Annotated[TagValue | None, Header(alias="fiware-timeindex-attribute")] = None,
) -> Answered:
    """Put a notification into its queue."""
    sent = {
        "fiware-service": service,
        "fiware-servicepath": servicepath,
        "fiware-correlator": correlator,
        "fiware-timeindex-attribute": time_index,
    }
    payload = _within_limit(object_text(router.current_event.decoded_body or ""))
    tags = {name: value for name, value in sent.items() if value}
    use_cases().tasks.enqueue(QUEUE, [TaskSpec(payload, tags=tags)])
    return Response(200, "text/plain", "Notification successfully processed")


def _within_limit(payload: JsonText) -> JsonText:
    size = utf8_bytes(payload)
    if size > PAYLOAD_BYTES:
        message = f"a notification must be at most {PAYLOAD_BYTES} bytes; it is {size}"
        raise PayloadTooLarge(message, errors=[FieldError("body", message)])
    return payload
