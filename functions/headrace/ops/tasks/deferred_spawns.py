"""Children that do not fit the transaction of their report.

The report's transaction writes them as *lots*: key locks that hold their specifications as JSON.
Another transaction creates the children of a lot and removes its key lock, so each lot is made
exactly once: by the call of the report, or by the reaper if that call is cut off.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Final

import msgspec

from headrace.domain import limits
from headrace.domain.change import KeyLock
from headrace.domain.limits import KIB
from headrace.domain.plan import TaskSpec

LOTS: Final = "spawn"
"""The kind of the key locks."""

LARGE: Final = 96 * KIB
"""A child with a larger payload is created with its report; 2 MiB are at most 21 of them."""

_LOT_BYTES: Final = 256 * KIB  # of JSON; an item of DynamoDB takes 400 KB


@dataclass(frozen=True, slots=True)
class DeferredChild:
    """A child; ``place`` is that of its entry in the report."""

    place: int
    queue: str
    task_id: str
    due_at: datetime
    new: TaskSpec


@dataclass(frozen=True, slots=True)
class SpawnLot:
    """Children to create in one transaction; ``batches`` are those of their parent."""

    batches: frozenset[str]
    children: tuple[DeferredChild, ...]


def _plain_text(value: object) -> str:
    """Return a text of a subclass of str, which msgspec does not know, as a plain text."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} cannot be written as JSON")
    return str(value)


_encoded: Final = msgspec.json.Encoder(enc_hook=_plain_text).encode
_lot: Final = msgspec.json.Decoder(SpawnLot)


def lots_of(
    prefix: str, batches: frozenset[str], children: Sequence[DeferredChild]
) -> list[KeyLock]:
    """Return the key locks for *children* of a report; *prefix* is its lot_prefix()."""
    parts: list[list[DeferredChild]] = []
    room = 0
    for child in children:
        size = len(_encoded(child))
        if not parts or len(parts[-1]) == limits.SPAWN_AT_ONCE or size > room:
            parts.append([])
            room = _LOT_BYTES
        parts[-1].append(child)
        room -= size
    texts = [_encoded(SpawnLot(batches, tuple(part))).decode() for part in parts]
    return [KeyLock(LOTS, f"{prefix}{number:03}", text) for number, text in enumerate(texts)]


def lot_prefix(task_id: str, lease_id: str) -> str:
    """Return how the names of the lots of one report begin."""
    return blake2b(f"{lease_id}:{task_id}".encode(), digest_size=16).hexdigest() + "."


def read_lot(text: str) -> SpawnLot:
    """Return the lot that a key lock holds."""
    return _lot.decode(text)
