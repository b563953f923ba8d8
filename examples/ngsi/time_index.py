"""Which of the many times in a notified entity is the time of its row.

QuantumLeap's order; the first candidate that is a time wins:

1. the attribute that the header ``Fiware-TimeIndex-Attribute`` names, then metadata of that name
2. ``TimeInstant``: attribute, then metadata
3. ``timestamp``: attribute, then metadata
4. NGSI-LD's ``observedAt``, then ``modifiedAt``, of any attribute
5. ``observedAt``, then ``modifiedAt``, of the entity itself
6. ``dateModified``: attribute, then metadata
7. when the notification was received

Where several attributes carry the same metadata, the latest of them counts.
"""

from collections.abc import Iterator
from datetime import datetime

from examples.ngsi.values import Json, instant_of

NOT_ATTRIBUTES = frozenset({"id", "type", "@context"})


def attributes_of(entity: dict[str, Json]) -> Iterator[tuple[str, dict[str, Json]]]:
    """Name and object of each attribute; what is not an object is no attribute."""
    for name, attribute in entity.items():
        if name not in NOT_ATTRIBUTES and isinstance(attribute, dict):
            yield name, attribute


def time_index(entity: dict[str, Json], custom: str, received_at: datetime) -> datetime:
    """The time of an entity's row.

    ``custom`` is what the header Fiware-TimeIndex-Attribute says, empty when it was not sent.
    """
    for candidate in _candidates(entity, custom):
        if candidate is not None:
            return candidate
    return received_at


def _candidates(entity: dict[str, Json], custom: str) -> Iterator[datetime | None]:
    for name in filter(None, (custom, "TimeInstant", "timestamp")):
        yield _of_attribute(entity, name)
        yield _latest_metadata(entity, name)
    for name in ("observedAt", "modifiedAt"):
        yield _latest(instant_of(attribute.get(name)) for _, attribute in attributes_of(entity))
    for name in ("observedAt", "modifiedAt"):
        yield instant_of(entity.get(name))
    yield _of_attribute(entity, "dateModified")
    yield _latest_metadata(entity, "dateModified")


def _of_attribute(entity: dict[str, Json], name: str) -> datetime | None:
    attribute = entity.get(name)
    return instant_of(attribute.get("value")) if isinstance(attribute, dict) else None


def _latest_metadata(entity: dict[str, Json], name: str) -> datetime | None:
    return _latest(_metadata(attribute, name) for _, attribute in attributes_of(entity))


def _metadata(attribute: dict[str, Json], name: str) -> datetime | None:
    metadata = attribute.get("metadata")
    entry = metadata.get(name) if isinstance(metadata, dict) else None
    return instant_of(entry.get("value")) if isinstance(entry, dict) else None


def _latest(instants: Iterator[datetime | None]) -> datetime | None:
    return max((instant for instant in instants if instant is not None), default=None)
