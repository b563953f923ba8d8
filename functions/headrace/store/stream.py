"""The stream of the tasks table, read as writes of tasks.

The stream shows every write as the item's images before and after it, in DynamoDB's own JSON.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from headrace.domain.transitions import TaskWrite
from headrace.store.items import from_item

StreamRecord: TypeAlias = Mapping[str, Any]
"""A record as Lambda delivers it: ``{"eventName": …, "dynamodb": {"NewImage": …, …}, …}``."""

_TTL_SERVICE: Final = "dynamodb.amazonaws.com"
"""The principal by which DynamoDB removes items that are past their retention."""
_MICROS: Final = 1_000_000


class StreamBatch(NamedTuple):
    """The writes of a batch, and for each record that could not be read the reason."""

    writes: list[TaskWrite]
    unreadable: list[str]


def writes_of(records: Iterable[StreamRecord]) -> StreamBatch:
    """Return the writes that *records* of one shard of the stream show, in order."""
    batch = StreamBatch([], [])
    for record in records:
        try:
            batch.writes.append(_write(record))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            reason = f"not a record of the stream: {type(error).__name__}: {error}"
            batch.unreadable.append(reason)
    return batch


def _write(record: StreamRecord) -> TaskWrite:
    change = record["dynamodb"]
    old, new = change.get("OldImage"), change.get("NewImage")
    identity = record.get("userIdentity")
    principal = identity.get("principalId") if isinstance(identity, Mapping) else None
    return TaskWrite(
        int(change["SequenceNumber"]),
        int(float(change["ApproximateCreationDateTime"]) * _MICROS),
        None if old is None else from_item(old),
        None if new is None else from_item(new),
        principal == _TTL_SERVICE,
    )
