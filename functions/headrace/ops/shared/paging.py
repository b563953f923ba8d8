"""Lists page by page: the cursor of the next, and what the caller may see of one.

A cursor says where a list goes on.  Callers cannot read it, and altered it is of no use.
A list may end a page at something that the caller is not shown, so where that is stays hidden too.
The mark that makes a cursor ours is a keyed hash of what it holds; it is also what the pad is made
from that hides it (which is how SIV modes do it, with BLAKE2 as the keyed function).
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.limits import AnswerRoom
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Record, Store
from headrace.store.call_scope import flat_rate, restricted

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_MARK_BYTES: Final = 16
_BLOCK_BYTES: Final = 64


class Cursors(ServicePart):
    """Writes and reads cursors; *secret* is what makes them ours."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.secret: bytes = hashlib.sha256(
            f"cursor {service.settings.admin_key}".encode()
        ).digest()

    def write(self, scope: str, state: object) -> str:
        """Return *state*, which is JSON, as a cursor good for *scope* (the list, its filter)."""
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

    def walk(
        self, scope: str, positions: Iterable[object], is_over: Callable[[], bool]
    ) -> str | None:
        """Go through *positions* until the call is over; return the cursor that continues there.

        None: the walk has reached its end.
        """
        for position in positions:
            if is_over():
                return self.write(scope, position)
        return None

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


LOOKED_AT: Final = 2_000
"""Records that one call looks at before it answers with what it has."""

LOOKS_FOR: Final = timedelta(seconds=5)
"""And how long, where reading is slow."""

_STRIDE: Final = 250
_READ_BYTES: Final = 4096
_ROW_BYTES: Final = 8192  # of what an answer says of one besides what its record holds, at most
_KEY_BYTES: Final = 100  # of what a record takes beside its body, about

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Found(Generic[_T]):
    """What is shown of a page, and the cursor of the next one; None: that was all."""

    shown: tuple[_T, ...]
    cursor: str | None


def text_of_record(record: Record, _shown: object) -> str:
    """Return the body of *record* as JSON."""
    return json.dumps(record.body, ensure_ascii=False, default=str)


def seek(  # noqa: PLR0913  of whom, what, whence and how many
    store: Store,
    kind: str,
    keep: Callable[[Record], _T | None],
    cursors: Cursors,
    scope: str,
    *,
    limit: int,
    cursor: str | None,
    prefix: str = "",
    now: Callable[[], datetime],
    text_of: Callable[[Record, _T], str] = text_of_record,
) -> Found[_T]:
    """Return up to *limit* records of *kind* as *keep* makes them, without those it leaves out.

    They come behind *cursor*, which is good for *scope*; raises InvalidRequest for a forged one.
    A page is full if there is enough to fill it within what one call looks at and one answer
    holds; else it is short, or empty, and there may be more.  *text_of* returns about what the
    answer shows of one.  Whoever may not know of all queues pays for what is shown.
    """
    until, looked_at, stride = now() + LOOKS_FOR, 0, min(_STRIDE, limit + 1)
    shown: list[_T] = []
    room = AnswerRoom()
    after, last = cursors.read(scope, cursor) if cursor else "", ""
    with flat_rate() as rate:
        while True:
            records, more = store.records(kind, prefix=prefix, after=after, limit=stride)
            for record in records:
                kept = keep(record)
                if kept is not None:
                    fits = room.takes(text_of(record, kept), besides=_ROW_BYTES) or not shown
                    if len(shown) == limit or not fits:  # this one begins the next page
                        rate.read = read_units(shown)
                        return Found(tuple(shown), cursors.write(scope, last))
                    shown.append(kept)
                    last = record.name
                after = record.name
            rate.read = read_units(shown)
            looked_at += len(records)
            if not more:
                return Found(tuple(shown), None)
            if looked_at >= LOOKED_AT or now() >= until:
                return Found(tuple(shown), cursors.write(scope, after))
            stride = _STRIDE  # where much is left out, go on in longer strides


def read_units(shown: Iterable[object]) -> float:
    """Return about what it costs to read just what is *shown*; 0 where nobody sees it."""
    if not restricted():
        return 0
    size = sum(_KEY_BYTES + len(repr(one).encode()) for one in shown)
    return max(1, ceil(size / _READ_BYTES))
