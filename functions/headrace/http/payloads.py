"""Payloads that producers upload themselves, and the URLs at which workers find them."""

from typing import Annotated, Final

from pydantic import Field

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.task import OffloadedText
from headrace.http.fields import Examples, RequestBody, TaskId, example
from headrace.http.parameters import QueueInPath
from headrace.http.request import this_request
from headrace.http.routing import Routes
from headrace.runtime.wiring import current_service
from headrace.wire.base import instant
from headrace.wire.tasks import UploadGranted

routes: Final = Routes("Tasks")


class UploadBody(RequestBody):
    """A payload to upload."""

    bytes: Annotated[int, Field(ge=limits.UPLOAD_BYTES[0], le=limits.UPLOAD_BYTES[1])] = Field(
        description="Its size in bytes."
    )
    sha256: Annotated[str, Field(pattern=f"^{limits.SHA256}$")] = Field(
        description="Its sha256, in hex."
    )
    id: TaskId | None = Field(
        default=None, description="The id of the task that it is for; the default is a new id."
    )


UPLOAD: Final[Examples] = {
    "video": example(
        "Ten megabytes",
        {
            "bytes": 10_485_760,
            "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        },
    )
}


@routes.add("POST", "/v1/queues/{queue}/payloads", Permission.ENQUEUE, status=201, examples=UPLOAD)
def upload_payload(queue: QueueInPath, body: UploadBody) -> UploadGranted:
    """Get a URL for uploading a payload.

    Upload it with PUT to `url`, with `headers`, then enqueue one task with `payload_ref` instead of
    `payload`, both within an hour. It may be any bytes, up to 1 GiB. An upload of another size or
    sha256 is refused. The task has the `id` of this call, so a repeated enqueue is EXISTING.
    Workers get a `payload_url` instead of the payload. 400 if payloads are not stored outside the
    table (`PayloadOffloadBytes`).
    """
    granted = current_service().uploads.grant(
        queue,
        size=body.bytes,
        digest=body.sha256,
        task_id=body.id,
        origin=_origin(),
    )
    return UploadGranted(
        payload_ref=granted.upload.name,
        url=granted.url,
        headers=dict(granted.headers),
        expires_at=instant(granted.upload.until),
    )


def url_of(payload: OffloadedText) -> str:
    """Return the URL of an uploaded *payload*, as the client of this request reaches it."""
    url: str = current_service().uploads.url_of(payload, _origin())
    return url


def _origin() -> str | None:
    """Return the address at which the client reaches the service, None over ``file:``."""
    request = this_request()
    host = request.headers.get("host")
    if host is None:
        return None
    return f"{request.headers.get('x-forwarded-proto', 'http')}://{host}{request.base}"
