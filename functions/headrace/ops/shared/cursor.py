"""Cursors: where a list goes on, not to be read by callers and of no use when altered.

A list may end a page at something that the caller is not shown, so where that is stays hidden too.
The mark that makes a cursor ours is a keyed hash of what it holds; it is also what the pad is made
from that hides it (which is how SIV modes do it, with BLAKE2 as the keyed function).
"""

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.domain.errors import FieldError, InvalidRequest

_MARK_BYTES: Final = 16
_BLOCK_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Cursors:
    """Writes and reads cursors; *secret* is what makes them ours."""

    secret: bytes = field(repr=False)

    def write(self, scope: str, state: Any) -> str:  # noqa: ANN401  any JSON value
        """Return *state* as a cursor that is good for *scope* (the list and its filter) only."""
        body = json.dumps(state, separators=(",", ":")).encode()
        mark = self._mark(scope, body)
        return base64.urlsafe_b64encode(mark + self._padded(mark, body)).decode().rstrip("=")

    def read(self, scope: str, cursor: str) -> Any:  # noqa: ANN401  what write() was given
        """Return the state of *cursor*.  Raises InvalidRequest when we did not write it so."""
        try:
            padding = "=" * (-len(cursor) % 4)
            blob = base64.b64decode(cursor + padding, altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            raise _bad_cursor() from None
        mark = blob[:_MARK_BYTES]
        body = self._padded(mark, blob[_MARK_BYTES:])
        if not hmac.compare_digest(mark, self._mark(scope, body)):
            raise _bad_cursor()
        return json.loads(body)

    def _mark(self, scope: str, body: bytes) -> bytes:
        return self._keyed(b"mark", scope.encode() + b"\0" + body, _MARK_BYTES)

    def _padded(self, mark: bytes, body: bytes) -> bytes:
        """Return *body* hidden, or what was hidden: the pad of *mark* goes on and comes off."""
        blocks = range(-(-len(body) // _BLOCK_BYTES))
        pad = b"".join(
            self._keyed(b"pad", mark + block.to_bytes(4), _BLOCK_BYTES) for block in blocks
        )
        return bytes(one ^ other for one, other in zip(body, pad, strict=False))

    def _keyed(self, use: bytes, text: bytes, size: int) -> bytes:
        key = self.secret[:64]
        return hashlib.blake2b(text, key=key, person=use, digest_size=size).digest()


def _bad_cursor() -> InvalidRequest:
    detail = "cursor is not one this list has given, with this filter"
    return InvalidRequest(detail, errors=(FieldError("cursor", detail),))
