"""What Lambda hands on from the stream of the tasks table, as writes of tasks.

The stream shows every write as the item's images before and after it, in DynamoDB's own JSON.  A
view reads an attribute when it is asked for it: most are never looked at.  So that an image is not
one of a task may show only then; see ``TaskView``.
"""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from headrace.domain.task import Membership, OffloadedText, State, Task
from headrace.domain.write import LatestError, Spot, TaskWrite
from headrace.store import keys
from headrace.store.items import from_item, member, offloaded

StreamRecord: TypeAlias = Mapping[str, Any]
"""A record as Lambda hands it on: ``{"eventName": …, "dynamodb": {"NewImage": …, …}, …}``."""

Image: TypeAlias = Mapping[str, Mapping[str, Any]]
"""An item as the stream shows it, such as ``{"task_id": {"S": "tsk_1"}}``."""

SIZES: Final = "_sizes"
"""Where an image whose large texts were left out says how many bytes they have."""

_REFERENCES: Final = ("payload_ref", "result_ref", "progress_ref")
_PLACES: Final = 4096  # remembered; a place is a queue, a state and a label
_WHO: Final = "principalId"
_BROOM: Final = "dynamodb.amazonaws.com"  # who removes what is past its retention
_MICROS: Final = 1_000_000


class StreamBatch(NamedTuple):
    """The writes of a batch, and of each record that is none of the stream's why it is left out."""

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
    return TaskWrite(
        int(change["SequenceNumber"]),
        int(float(change["ApproximateCreationDateTime"]) * _MICROS),
        None if old is None else ImageView(old),
        None if new is None else ImageView(new),
        identity is not None and isinstance(identity, Mapping) and identity.get(_WHO) == _BROOM,
    )


class ImageView(NamedTuple):
    """A task as an image shows it."""

    image: Image

    @property
    def id(self) -> str:
        return str(self.image[keys.TASK_ID]["S"])

    @property
    def spot(self) -> Spot | None:
        image = self.image
        if keys.SPENT in image:
            return None
        spot = _spot(image[keys.QUEUE_STATE]["S"])
        return None if spot[1] is State.DELETED else spot

    @property
    def ended(self) -> Spot | None:
        image = self.image
        return _spot(image[keys.SPENT]["S"]) if keys.SPENT in image else None

    @property
    def label(self) -> int:
        return int(self.image[keys.QUEUE_STATE]["S"].split("#")[2])

    @property
    def scheduled_at(self) -> int:
        return int(self.image[keys.SCHEDULED_AT]["N"])

    @property
    def created_at(self) -> int:
        return int(self.image["created_at"]["N"])

    @property
    def version(self) -> int:
        return int(self.image["version"]["N"])

    @property
    def last_move(self) -> str:
        return str(self.image["last_move"]["S"])

    @property
    def due_at(self) -> int | None:
        image = self.image
        return int(image["due_at"]["N"]) if "due_at" in image else None

    @property
    def enqueued_at(self) -> int | None:
        image = self.image
        return int(image["enqueued_at"]["N"]) if "enqueued_at" in image else None

    @property
    def started_at(self) -> int | None:
        image = self.image
        return int(image["started_at"]["N"]) if "started_at" in image else None

    @property
    def finished_at(self) -> int | None:
        image = self.image
        return int(image["finished_at"]["N"]) if "finished_at" in image else None

    @property
    def expires_at(self) -> int | None:
        image = self.image
        return int(image[keys.EXPIRES_AT]["N"]) if keys.EXPIRES_AT in image else None

    @property
    def attempts(self) -> int | None:
        image = self.image
        return int(image["attempts"]["N"]) if "attempts" in image else None

    @property
    def worker(self) -> str | None:
        image = self.image
        return str(image["worker"]["S"]) if "worker" in image else None

    @property
    def lease_id(self) -> str | None:
        image = self.image
        lease = image["lease"]["M"] if "lease" in image else {}
        return str(lease["id"]["S"]) if "id" in lease else None

    @property
    def lease_expires_at(self) -> int | None:
        image = self.image
        lease = image["lease"]["M"] if "lease" in image else {}
        return int(lease["expires_at"]["N"]) if "expires_at" in lease else None

    @property
    def settled_lease_id(self) -> str | None:
        image = self.image
        return str(image["settled_lease_id"]["S"]) if "settled_lease_id" in image else None

    @property
    def dead_reason(self) -> str | None:
        image = self.image
        return str(image["dead_reason"]["S"]) if "dead_reason" in image else None

    @property
    def hops(self) -> int:
        trail = self.image.get("trail")
        return len(trail["L"]) if trail else 0

    @property
    def memberships(self) -> tuple[Membership, ...]:
        members = self.image.get("batches")
        return tuple(member(entry["S"]) for entry in members["L"]) if members else ()

    @property
    def latest_error(self) -> LatestError | None:
        errors = self.image["errors"]["L"]
        if not errors:
            return None
        stored = json.loads(errors[-1]["S"])
        texts = (str(stored.get(name, "")) for name in ("kind", "type", "message"))
        return LatestError(stored.get("at"), *texts)

    @property
    def tags(self) -> Mapping[str, str]:
        tags = self.image["tags"]["M"] if "tags" in self.image else {}
        return {key: str(value["S"]) for key, value in tags.items()}

    @property
    def payload(self) -> str | None:
        image = self.image
        return str(image["payload"]["S"]) if "payload" in image else None

    @property
    def payload_bytes(self) -> int | None:
        return _bytes(self.image, "payload")

    @property
    def result_bytes(self) -> int | None:
        return _bytes(self.image, "result")

    @property
    def offloaded(self) -> tuple[OffloadedText, ...]:
        image = self.image
        return tuple(offloaded(image[name]["S"]) for name in _REFERENCES if name in image)

    @property
    def tells_of(self) -> str | None:
        image = self.image
        return str(image["tells_of"]["S"]) if "tells_of" in image else None

    def whole(self) -> Task:
        return from_item({name: dict(value) for name, value in self.image.items()})


def _bytes(image: Image, name: str) -> int | None:
    size = image.get(SIZES, {}).get(name)
    if size is not None:
        return int(size)
    if f"{name}_ref" in image:
        return offloaded(image[f"{name}_ref"]["S"]).bytes
    return len(str(image[name]["S"]).encode()) if name in image else None


@lru_cache(_PLACES)
def _spot(place: str) -> Spot:
    queue, state, _ = place.split("#")
    return queue, State(state)
