"""What tasks cost in units of DynamoDB.  The bench measures against these formulas.

Units are those of DynamoDB: a write unit is one write of up to 1 KB, a read unit one consistent
read of up to 4 KB (half of one where it need not be consistent).  Every write of a task writes its
whole item, and one unit for each index entry that it adds or takes away.
"""

import math
from dataclasses import dataclass
from typing import Final

OVERHEAD_BYTES: Final = 600
"""What a task's item holds besides payload and result: names, times, tags, lease."""
REFERENCE_BYTES: Final = 160
"""What an item has in place of a payload that is kept elsewhere: its size, digest and name."""

OFFLOAD_BYTES_DEFAULT: Final = 32 * 1024
"""Over which size a deployment keeps payloads in S3, unless its template says otherwise."""

WRITE_USD: Final = 0.625e-6
"""The price of a write unit: us-east-1, on demand, since November 2024."""

SHARD_DELIVERIES: Final = 500
"""Deliveries per second of one shard: 1,000 write units, and a task passes it with two."""

_KB: Final = 1024
_QUERY: Final = 0.5  # read units: one page of the index, of up to 4 KB


@dataclass(frozen=True, slots=True)
class Units:
    """Write and read units."""

    write: float = 0.0
    read: float = 0.0

    def __add__(self, other: "Units") -> "Units":
        """Return both together."""
        return Units(self.write + other.write, self.read + other.read)

    def __mul__(self, times: float) -> "Units":
        """Return the units of so many."""
        return Units(self.write * times, self.read * times)


# -- what a call takes, by the sizes of what it touches --------------------------------------------

TRANSACTION: Final = 2
"""How often what is written in a transaction is counted."""


def write_units(before: int, after: int = 0) -> int:
    """Return the units of one write by the item's bytes *before* and *after* it (0: none there)."""
    return -(-max(before, after) // _KB) or 1


def read_units(size: int, *, consistent: bool = True) -> float:
    """Return the units of one item, or of all that one query goes through, of *size* bytes."""
    return (-(-size // (4 * _KB)) or 1) * (1.0 if consistent else 0.5)


def entry_units(*, was: bool, is_: bool, moved: bool, changed: bool) -> int:
    """Return the write units of an index entry of less than a kilobyte.

    One for each entry that goes (*was*) or comes (*is_*), so two for one that is *moved* to
    another key; one for other fields of it that are *changed*.
    """
    if was and is_:
        return 2 if moved else int(changed)
    return int(was or is_)


# -- plans -----------------------------------------------------------------------------------------


def item_units(payload_bytes: int) -> int:
    """Return the write units of one write of a task's item, its index entries left out."""
    return max(1, math.ceil((OVERHEAD_BYTES + payload_bytes) / _KB))


def bytes_inside(payload_bytes: int, offload_bytes: int) -> int:
    """Return the bytes of a payload in its item: a reference's if it is over *offload_bytes*.

    0 is no such bound; see ``domain.offload``.
    """
    outside = 0 < offload_bytes < payload_bytes
    return REFERENCE_BYTES if outside else payload_bytes


def enqueue(payload_bytes: int = 0) -> Units:
    """Return the cost of one new task: its item and its entry.  No dedupe key, no transaction."""
    return Units(item_units(payload_bytes) + 1)


def dequeue(payload_bytes: int = 0, *, batch: int = 1) -> Units:
    """Return the cost of one delivery: the item, the entry moved; a share of the index query."""
    return Units(item_units(payload_bytes) + 2, _QUERY / batch)


def noted_batch() -> Units:
    """Return the extra cost of a dequeue under a key: one record that names the batch."""
    return Units(1)


def heartbeat(payload_bytes: int = 0) -> Units:
    """Return the cost of prolonging one lease: it touches no entry."""
    return Units(item_units(payload_bytes))


def settle(payload_bytes: int = 0, *, kept: bool = True) -> Units:
    """Return the cost of a report that ends an attempt; a task not *kept* goes at once."""
    return Units(item_units(payload_bytes) + (2 if kept else 1))


def failure(payload_bytes: int = 0) -> Units:
    """Return the cost of a report that a task failed; a release and a move cost as much."""
    return settle(payload_bytes) + Units(read=read_units(OVERHEAD_BYTES + payload_bytes))


def life(
    payload_bytes: int = 0,
    *,
    batch: int = 1,
    kept: bool = True,
    retries: float = 0.0,
    heartbeats: float = 0.0,
) -> Units:
    """Return the cost of one task from enqueue to success.

    *retries* and *heartbeats* are how many a task has on average, *batch* the tasks of one call.
    """
    again = (dequeue(payload_bytes, batch=batch) + failure(payload_bytes)) * retries
    return (
        enqueue(payload_bytes)
        + dequeue(payload_bytes, batch=batch)
        + heartbeat(payload_bytes) * heartbeats
        + settle(payload_bytes, kept=kept)
        + again
    )
