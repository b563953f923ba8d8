"""Uploaded payloads on one machine: taken and handed out by URLs that the service has signed.

They pass a part at a time, whatever their size; on AWS they pass S3 instead, under the same shape.
"""

from collections.abc import Callable
from hashlib import sha256
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, unquote

from headrace.domain.errors import Unavailable
from headrace.domain.offload import PATH, ReceivedObject, Upload
from headrace.http.events import GatewayAnswer
from headrace.local.requests import LocalRequest, RequestRefused, refusal
from headrace.ops.tasks.uploads import Uploads
from headrace.runtime.function import ALWAYS
from headrace.safe_logging import safe_logger

_BINARY: Final = "application/octet-stream"

_log = safe_logger(__name__)


class IncomingPayload:
    """An upload on its way in, counted and digested as it comes."""

    def __init__(self, upload: Upload, to: ReceivedObject) -> None:
        self._upload, self._to = upload, to
        self._digest, self._bytes = sha256(), 0

    def write(self, part: bytes) -> None:
        """Take the next part.

        Raises:
            RequestRefused: it cannot be written.

        """
        self._bytes += len(part)
        self._digest.update(part)
        try:
            self._to.write(part)
        except Unavailable as error:
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error

    def finish(self) -> str | None:
        """Keep it, if it is what was granted; else return why it is not.  Raises Unavailable."""
        granted = self._upload
        if self._bytes != granted.bytes:
            return f"bytes: {self._bytes} came, and {granted.bytes} were granted"
        if self._digest.hexdigest() != granted.sha256:
            return "sha256: what came has another one than was granted"
        self._to.keep()
        return None

    def abandon(self) -> None:
        """Forget what came of it."""
        self._to.abandon()


class PayloadStreams:
    """Answers what is asked of the signed URLs."""

    def __init__(self, uploads: Callable[[], Uploads]) -> None:
        """Take the use case, which is made when it is first asked for."""
        self._uploads = uploads

    @staticmethod
    def are_at(path: str) -> bool:
        """Tell whether a path is that of a payload."""
        return path.startswith(PATH)

    def begin(self, request: LocalRequest, length: int | None) -> IncomingPayload:
        """Begin to take the payload that a PUT of *length* bytes brings, before it is here.

        Raises:
            RequestRefused: it is not what was granted, or cannot be kept.

        """
        upload = self._granted("PUT", request)
        if length is None:
            raise RequestRefused(HTTPStatus.LENGTH_REQUIRED, "An upload says its Content-Length.")
        if length != upload.bytes:
            detail = f"Content-Length is {length}, and {upload.bytes} bytes were granted."
            raise RequestRefused(HTTPStatus.BAD_REQUEST, detail)
        try:
            return IncomingPayload(upload, self._uploads().own_objects.receive(upload.name))
        except Unavailable as error:
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error

    def answer(self, request: LocalRequest) -> GatewayAnswer:
        """Answer a PUT whose payload is here, or a GET."""
        try:
            if request.method == "PUT":
                return self._kept(request)
            if request.method == "GET":
                return self._read(request)
        except RequestRefused as error:
            return refusal(error.status, str(error))
        except Unavailable as error:
            return refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        return refusal(HTTPStatus.METHOD_NOT_ALLOWED, "A payload is PUT, or GET.")

    def _kept(self, request: LocalRequest) -> GatewayAnswer:
        incoming = request.incoming
        if incoming is None:
            return refusal(HTTPStatus.BAD_REQUEST, "This is no upload.")
        try:
            wrong = incoming.finish()
        finally:
            incoming.abandon()
        if wrong is not None:
            return refusal(HTTPStatus.BAD_REQUEST, wrong)
        return GatewayAnswer(HTTPStatus.OK, list(ALWAYS.items()), b"")

    def _read(self, request: LocalRequest) -> GatewayAnswer:
        upload = self._granted("GET", request)
        content = self._uploads().own_objects.open(upload.name)
        if content is None:
            return refusal(HTTPStatus.NOT_FOUND, "There is no such payload.")
        headers = [("Content-Type", _BINARY), *ALWAYS.items()]
        return GatewayAnswer(HTTPStatus.OK, headers, b"", content, upload.bytes)

    def _granted(self, method: str, request: LocalRequest) -> Upload:
        name = unquote(request.path.removeprefix(PATH))
        upload = self._uploads().own(method, name, parse_qs(request.query))
        if upload is None:
            detail = f"This URL allows no {method}, or no more: its hour is over."
            raise RequestRefused(HTTPStatus.FORBIDDEN, detail)
        return upload
