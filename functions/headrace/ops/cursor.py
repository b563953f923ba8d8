"""Cursors: where a list goes on, opaque to callers and of no use when altered."""

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.domain.errors import FieldError, InvalidRequest

_MARK_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class Cursors:
    """Writes and reads cursors; *secret* is what makes them ours."""

    secret: bytes = field(repr=False)

    def write(self, scope: str, state: Any) -> str:  # noqa: ANN401  any JSON value
        """Return *state* as a cursor that is good for *scope* (the list and its filter) only."""
        body = json.dumps(state, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._mark(scope, body) + body).decode().rstrip("=")

    def read(self, scope: str, cursor: str) -> Any:  # noqa: ANN401  what write() was given
        """Return the state of *cursor*.  Raises InvalidRequest when we did not write it so."""
        try:
            padding = "=" * (-len(cursor) % 4)
            blob = base64.b64decode(cursor + padding, altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            raise _bad_cursor() from None
        mark, body = blob[:_MARK_BYTES], blob[_MARK_BYTES:]
        if not hmac.compare_digest(mark, self._mark(scope, body)):
            raise _bad_cursor()
        return json.loads(body)

    def _mark(self, scope: str, body: bytes) -> bytes:
        keyed = hashlib.blake2b(
            scope.encode() + b"\0" + body, key=self.secret[:64], digest_size=_MARK_BYTES
        )
        return keyed.digest()


def _bad_cursor() -> InvalidRequest:
    detail = "cursor is not one this list has given, with this filter"
    return InvalidRequest(detail, errors=(FieldError("cursor", detail),))
