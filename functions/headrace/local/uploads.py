"""Uploaded payloads on one machine, by URLs that the service has signed.

Payloads of any size are streamed. On AWS they go to S3 instead, with the same names.
"""

from collections.abc import Callable
from hashlib import sha256
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, unquote

from headrace.domain.offload import PATH, ReceivedObject, Upload
from headrace.http.events import GatewayAnswer
from headrace.local.requests import LocalRequest, RequestRefused, refusal
from headrace.ops.tasks.uploads import Uploads
from headrace.runtime.function import ALWAYS

_BINARY: Final = "application/octet-stream"


class IncomingPayload:
    """An upload that is being received; it counts and hashes the bytes."""

    def __init__(self, upload: Upload, to: ReceivedObject) -> None:
        self._upload, self._to = upload, to
        self._digest, self._bytes = sha256(), 0

    def write(self, part: bytes) -> None:
        """Store the next part.  Raises Unavailable."""
        self._bytes += len(part)
        self._digest.update(part)
        self._to.write(part)

    def finish(self) -> GatewayAnswer:
        """Keep the payload if it is the granted one, and return the answer.  Raises Unavailable."""
        granted = self._upload
        if self._bytes != granted.bytes:
            wrong = f"bytes: {self._bytes} came, and {granted.bytes} were granted"
            return refusal(HTTPStatus.BAD_REQUEST, wrong)
        if self._digest.hexdigest() != granted.sha256:
            wrong = "sha256: the content has another digest than the granted one"
            return refusal(HTTPStatus.BAD_REQUEST, wrong)
        self._to.keep()
        return GatewayAnswer(HTTPStatus.OK, list(ALWAYS.items()), b"")

    def abandon(self) -> None:
        """Delete the received part, unless the payload was kept."""
        self._to.abandon()


class LocalUploads:
    """Answers requests to the signed URLs."""

    def __init__(self, uploads: Callable[[], Uploads]) -> None:
        self._uploads = uploads

    def begin(self, request: LocalRequest) -> IncomingPayload:
        """Begin to receive the payload of a PUT.

        Raises RequestRefused for a payload that was not granted, and Unavailable.
        """
        upload = self._granted("PUT", request)
        if request.length is None:
            detail = "An upload needs a Content-Length."
            raise RequestRefused(HTTPStatus.LENGTH_REQUIRED, detail)
        if request.length != upload.bytes:
            detail = f"Content-Length is {request.length}, and {upload.bytes} bytes were granted."
            raise RequestRefused(HTTPStatus.BAD_REQUEST, detail)
        return IncomingPayload(upload, self._uploads().own_objects.receive(upload.name))

    def read(self, request: LocalRequest) -> GatewayAnswer:
        """Answer a GET.  Raises RequestRefused and Unavailable."""
        if request.method != "GET":
            raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, "A payload takes PUT and GET.")
        upload = self._granted("GET", request)
        content = self._uploads().own_objects.open(upload.name)
        if content is None:
            raise RequestRefused(HTTPStatus.NOT_FOUND, "This payload does not exist.")
        headers = [("Content-Type", _BINARY), *ALWAYS.items()]
        return GatewayAnswer(HTTPStatus.OK, headers, b"", content, upload.bytes)

    def _granted(self, method: str, request: LocalRequest) -> Upload:
        name = unquote(request.path.removeprefix(PATH))
        upload = self._uploads().own(method, name, parse_qs(request.query))
        if upload is None:
            detail = f"This URL allows no {method}, or its hour is over."
            raise RequestRefused(HTTPStatus.FORBIDDEN, detail)
        return upload
