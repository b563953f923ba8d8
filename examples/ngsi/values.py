"""What an NGSI attribute is worth: its type, its value made to fit that type, and its time.

The rules are QuantumLeap's. A value that does not fit its declared type becomes null rather than
an error, so that one odd reading never costs the others that came with it.

An attribute may come as NGSI v2 writes it, as NGSI-LD does (normalized or concise, every kind of
property and relationship), or simplified: its value alone. Several instances of one attribute,
which NGSI-LD tells apart by ``datasetId``, are attributes called ``name@datasetId``.

Of the many times in a notified entity the first candidate that is a time is that of its row:

1. the attribute that the header ``Fiware-TimeIndex-Attribute`` names, then metadata of that name
2. ``TimeInstant``: attribute, then metadata
3. ``timestamp``: attribute, then metadata
4. NGSI-LD's ``observedAt``, then ``modifiedAt``, of any attribute
5. ``observedAt``, then ``modifiedAt``, of the entity itself
6. ``dateModified``: attribute, then metadata
7. when the notification was received

Where several attributes carry the same metadata, the latest of them counts.
Pure: nothing here reads a clock, a file or the network.
"""

import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

MOST_DIGITS = 400
"""Longer numeric texts are not numbers: a float has 309 digits at most."""

MOST_LEVELS = 100
"""How deep lists and objects may be nested; Python's own reader and writer give up near 1,000."""
NOT_ATTRIBUTES = frozenset(
    {"id", "type", "@context", "scope"}
    | {"createdAt", "modifiedAt", "deletedAt", "observedAt", "expiresAt"}
)

VALUE_OF = {
    "Relationship": "object",
    "LanguageProperty": "languageMap",
    "VocabProperty": "vocab",
    "JsonProperty": "json",
    "ListProperty": "valueList",
    "ListRelationship": "objectList",
}
"""Where each kind of NGSI-LD attribute has its value; all others have it in ``value``."""

BESIDE_VALUES = frozenset(
    {"type", "metadata", "unitCode", "datasetId", "observedAt", "createdAt", "modifiedAt"}
)
GEOMETRIES = frozenset(
    {"Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon"}
    | {"GeometryCollection"}
)

FULL_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", re.ASCII)
"""How a text begins that is a date and time without being declared as one."""


def instant_of(value: Json) -> datetime | None:
    """The instant an ISO 8601 text names, in UTC, or None; without an offset it is taken as UTC.

    NGSI-LD may wrap the text: ``{"@type": "DateTime", "@value": "2016-07-08T08:02:21Z"}``.
    """
    if isinstance(value, dict):
        value = value.get("@value")
    if not isinstance(value, str):
        return None
    try:
        instant = datetime.fromisoformat(value.strip())
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def instant_text(instant: datetime) -> str:
    """An aware instant as RFC 3339 in UTC with microseconds, the form in which rows carry time."""
    naive = instant.astimezone(UTC).replace(tzinfo=None)
    return f"{naive.isoformat(timespec='microseconds')}Z"


def too_deep(value: Json, levels: int = MOST_LEVELS) -> bool:
    """Whether lists and objects are nested in one another more than ``levels`` times."""
    if not isinstance(value, list | dict):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(too_deep(item, levels - 1) for item in inner)


def typed_value(attribute: dict[str, Json]) -> tuple[str, Json] | None:
    """Type and value of one attribute, or None when it has neither and so says nothing.

    Goes through the whole value; ``too_deep`` is asked first.
    """
    declared = attribute.get("type")
    value = attribute.get("value")
    for kind, member in VALUE_OF.items():
        if declared == kind or (member in attribute and "value" not in attribute):
            found = attribute.get(member) if value is None else value
            return kind, _finite(_targets(found) if kind == "ListRelationship" else found)
    if not isinstance(declared, str) or declared in {"", "Property"}:
        if value is None and not declared:
            return None
        declared = _inferred_type(value)
    convert = _CONVERTERS.get(declared)
    return declared, _finite(value if convert is None else convert(value))


def _targets(objects: Json) -> Json:
    """The targets of a list of relationships, each of which may be ``{"object": target}``."""
    if not isinstance(objects, list):
        return objects
    return [one.get("object", one) if isinstance(one, dict) else one for one in objects]


def unit_of(attribute: dict[str, Json]) -> str | None:
    """The unit of measure that came with an attribute, such as CEL, or None.

    NGSI-LD has ``unitCode`` beside the value, NGSI v2 in the metadata.
    """
    unit = attribute.get("unitCode")
    metadata = attribute.get("metadata")
    if unit is None and isinstance(metadata, dict):
        entry = metadata.get("unitCode")
        unit = entry.get("value") if isinstance(entry, dict) else None
    return unit if isinstance(unit, str) and unit.isprintable() else None


def _inferred_type(value: Json) -> str:
    """The NGSI type of a value that came without one, as all of NGSI-LD's properties do."""
    if isinstance(value, list):
        return "Array"
    if isinstance(value, dict):
        return _structured_type(value)
    if isinstance(value, bool):
        return "Boolean"
    if isinstance(value, int):
        return "Integer"
    if isinstance(value, float):
        return "Number"
    dated = isinstance(value, str) and FULL_TIME.match(value.strip()) and instant_of(value)
    return "DateTime" if dated else "Text"


def _structured_type(value: dict[str, Json]) -> str:
    if value.get("type") in GEOMETRIES:
        return "GeoProperty"
    return "DateTime" if value.get("@type") == "DateTime" else "StructuredValue"


def _finite(value: Json) -> Json:
    """The value with null for every number in it that is too large to be one, here ``inf``."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return value


def _number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    # Python reads "1_000" as a number; nobody else does.
    if isinstance(value, str) and (len(value) > MOST_DIGITS or "_" in value):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _integer(value: Json) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = _number(value)
    if number is None:
        return None
    try:
        # Before the detour over a float, which would round numbers of more than 15 digits.
        return int(value) if isinstance(value, str) else int(number)
    except ValueError:
        return int(number)


def _boolean(value: Json) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return bool(value) if isinstance(value, int) and value in {0, 1} else None


def _instant(value: Json) -> str | None:
    instant = instant_of(value)
    return None if instant is None else instant_text(instant)


def _geometry(value: Json) -> Json:
    return value if isinstance(value, dict) and isinstance(value.get("type"), str) else None


def _array(value: Json) -> Json:
    return value if isinstance(value, list) else None


def _structure(value: Json) -> Json:
    return value if isinstance(value, list | dict) else None


# Types that are not here, Text and every unknown one among them, keep their value as it came.
_CONVERTERS: dict[str, Callable[[Json], Json]] = {
    "Array": _array,
    "Boolean": _boolean,
    "DateTime": _instant,
    "GeoProperty": _geometry,
    "ISO8601": _instant,
    "Integer": _integer,
    "Number": _number,
    "StructuredValue": _structure,
    "geo:json": _geometry,
}


def attributes_of(entity: dict[str, Json]) -> Iterator[tuple[str, dict[str, Json]]]:
    """Name and object of each instance of each attribute, in the order in which they came."""
    for name, member in entity.items():
        if name in NOT_ATTRIBUTES:
            continue
        for attribute in _instances(member):
            dataset = attribute.get("datasetId")
            yield f"{name}@{dataset}" if isinstance(dataset, str) else name, attribute


def _instances(member: Json) -> list[dict[str, Json]]:
    """The attribute objects that *member* of an entity is; of a value alone, one made of it."""
    several = member if isinstance(member, list) else [member]
    if several and all(map(_is_attribute, several)):
        return [one for one in several if isinstance(one, dict)]
    return [{"value": member}]


def _is_attribute(member: Json) -> bool:
    if not isinstance(member, dict):
        return False
    return bool(member.keys() & {"value", *VALUE_OF.values()}) or member.keys() <= BESIDE_VALUES


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
    return instant_of(attribute.get("value") if isinstance(attribute, dict) else attribute)


def _latest_metadata(entity: dict[str, Json], name: str) -> datetime | None:
    return _latest(_metadata(attribute, name) for _, attribute in attributes_of(entity))


def _metadata(attribute: dict[str, Json], name: str) -> datetime | None:
    metadata = attribute.get("metadata")
    entry = metadata.get(name) if isinstance(metadata, dict) else None
    return instant_of(entry.get("value")) if isinstance(entry, dict) else None


def _latest(instants: Iterator[datetime | None]) -> datetime | None:
    return max((instant for instant in instants if instant is not None), default=None)
