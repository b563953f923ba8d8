"""What h11 takes of a request's head, and this service does not: others might read it otherwise."""

import re
from http import HTTPStatus
from typing import Final

import h11

_END: Final = re.compile(rb"\n\r?\n")
_FOLDED: Final = re.compile(rb"\n[ \t]")
_BARE: Final = re.compile(rb"(?<!\r)\n")


class RequestRefused(Exception):
    """A request cannot be taken; `status` says why."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        """Keep both for the answer."""
        super().__init__(detail)
        self.status = status


def not_http(wrong: str) -> RequestRefused:
    """Return the refusal of what breaks the protocol."""
    return RequestRefused(HTTPStatus.BAD_REQUEST, f"This is not HTTP as it should be: {wrong}.")


def long_head(most: int) -> RequestRefused:
    """Return the refusal of headers above `most` bytes."""
    detail = f"The request's headers are larger than {most} bytes."
    return RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)


def long_body(most: int) -> RequestRefused:
    """Return the refusal of a body above `most` bytes."""
    detail = f"The request's body is larger than {most} bytes."
    return RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)


def check_head(head: h11.Request, raw: bytes | bytearray, *, max_head: int, max_body: int) -> None:
    """Check a head that h11 has read; `raw` is what came, and may go on behind it.

    Raises:
        Refused: it is too large, announces too large a body, or could be read in two ways.

    """
    end = _END.search(raw)
    lines = raw[: end.end() if end else None]
    if len(lines) > max_head:
        raise long_head(max_head)
    names = {name for name, _ in head.headers}
    wrong = ""
    if _FOLDED.search(lines):
        wrong = "a header goes on in a second line"
    elif _BARE.search(lines):
        wrong = "a line ends without a carriage return"
    elif b"transfer-encoding" in names and b"content-length" in names:
        wrong = "Transfer-Encoding and Content-Length exclude each other"
    elif b"transfer-encoding" in names and head.http_version < b"1.1":
        wrong = "there is no Transfer-Encoding in HTTP/1.0"
    if wrong:
        raise not_http(wrong)
    if not head.http_version.startswith(b"1."):
        raise RequestRefused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "This service speaks HTTP/1.1.")
    lengths = [int(value) for name, value in head.headers if name == b"content-length"]
    if lengths and lengths[0] > max_body:
        raise long_body(max_body)
