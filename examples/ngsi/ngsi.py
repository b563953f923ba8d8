"""From one NGSI notification to the rows of its entities, by QuantumLeap's rules.

Validation first, of all entities, because one bad entity rejects the whole notification; then one
row per entity with its time, its service and service path, and its attributes typed.
Pure: the same notification, tags and receipt time always give the same rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from examples.ngsi.values import (
    MOST_LEVELS,
    Json,
    attributes_of,
    instant_text,
    time_index,
    too_deep,
    typed_value,
    unit_of,
)

SERVICE_TAG = "fiware-service"
TENANT_TAG = "ngsild-tenant"
SERVICE_PATH_TAG = "fiware-servicepath"
TIME_INDEX_TAG = "fiware-timeindex-attribute"
CORRELATOR_TAG = "fiware-correlator"

MOST_SHOWN = 60
"""Characters of an offending value that an error message repeats."""


class Unreadable(ValueError):
    """The notification is not what it should be; the text says where."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a row; a missing or unfit value is None, as is a unit that did not come."""

    type: str
    value: Any
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One entity at one time. ``time_index`` is RFC 3339 in UTC with microseconds."""

    entity_id: str
    entity_type: str
    time_index: str
    service: str
    service_path: str
    attributes: dict[str, Attribute]


@dataclass(frozen=True, slots=True)
class Parsed:
    """The rows of a notification, and the attributes that came without a value that fits."""

    rows: list[Row]
    without_value: list[str]


def split(notification: Json, tags: Mapping[str, str], received_at: datetime) -> list[Row]:
    """The rows of a notification, in the order of its entities.

    ``tags`` are the FIWARE headers that came with it, ``received_at`` (aware) is the time of an
    entity that carries none. An entity without a single value gives no row.
    """
    return parse(notification, tags, received_at).rows


def parse(notification: Json, tags: Mapping[str, str], received_at: datetime) -> Parsed:
    """The rows of ``split``, and each attribute without a value by its place and name."""
    entities = _entities(notification)
    paths = _service_paths(_whole_path(notification, tags), len(entities))
    custom = tags.get(TIME_INDEX_TAG, "")
    rows: list[Row] = []
    without_value: list[str] = []
    for place, (entity, path) in enumerate(zip(entities, paths, strict=True)):
        found = _attributes(entity, f"data.{place}")
        without_value += [
            f"data.{place}.{name}"
            for name, one in found.items()
            if one is None or one.value is None
        ]
        attributes = {name: one for name, one in found.items() if one is not None}
        if all(attribute.value is None for attribute in attributes.values()):
            continue
        row = Row(
            entity_id=str(entity["id"]),
            entity_type=_type_of(entity),
            time_index=instant_text(time_index(entity, custom, received_at)),
            service=tags.get(SERVICE_TAG) or tags.get(TENANT_TAG, ""),
            service_path=path,
            attributes=attributes,
        )
        rows.append(row)
    return Parsed(rows, without_value)


def _whole_path(notification: Json, tags: Mapping[str, str]) -> str:
    """The header's text: a tag has only its beginning, the payload a long one as a whole."""
    whole = notification.get(SERVICE_PATH_TAG) if isinstance(notification, dict) else None
    return whole if isinstance(whole, str) else tags.get(SERVICE_PATH_TAG, "")


def _entities(notification: Json) -> list[dict[str, Json]]:
    body = _object(notification, "")
    if "data" not in body:
        raise Unreadable("'data' is a required property")
    data = body["data"]
    if not isinstance(data, list):
        raise Unreadable(_wrong_type(data, "array", "data"))
    entities = []
    for place, item in enumerate(data):
        where = f"data.{place}"
        entity = _object(item, where)
        _text(entity, "id", where)
        types = entity.get("type")
        if isinstance(types, list) and types:
            for number, one in enumerate(types):
                _text({"type": one}, "type", f"{where}.type.{number}")
        else:
            _text(entity, "type", where)
        entities.append(entity)
    return entities


def _type_of(entity: dict[str, Json]) -> str:
    """The type; of an NGSI-LD entity with several all of them, in alphabetical order."""
    types = entity["type"]
    return ",".join(sorted(map(str, types))) if isinstance(types, list) else str(types)


def _attributes(entity: dict[str, Json], where: str) -> dict[str, Attribute | None]:
    """Each attribute by its name; None for one that has neither type nor value."""
    attributes: dict[str, Attribute | None] = {}
    for name, attribute in attributes_of(entity):
        _check_unicode(name, f"{where}, an attribute's name")
        if name in attributes:
            raise Unreadable(f"comes twice, without a datasetId of its own - '{where}.{name}'")
        if too_deep(attribute):
            raise Unreadable(f"nested more than {MOST_LEVELS} levels deep - '{where}.{name}'")
        typed = typed_value(attribute)
        attributes[name] = None if typed is None else Attribute(*typed, unit_of(attribute))
    return attributes


def _service_paths(header: str, entities: int) -> list[str]:
    """The service path of each entity: one path for all of them, or a list with one for each."""
    paths = header.replace(" ", "").split(",")
    if len(paths) == 1:
        return [paths[0] or "/"] * entities
    if len(paths) != entities:
        message = (
            f"{len(paths)} service paths for {entities} entities - fiware-servicepath: "
            "several are allowed only if their number is that of the entities"
        )
        raise Unreadable(message)
    return paths


def _object(value: Json, where: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise Unreadable(_wrong_type(value, "object", where))
    return value


def _text(container: dict[str, Json], name: str, where: str) -> str:
    if name not in container:
        raise Unreadable(f"'{name}' is a required property - '{where}'")
    value = container[name]
    if not isinstance(value, str):
        raise Unreadable(_wrong_type(value, "string", f"{where}.{name}"))
    _check_unicode(value, f"{where}.{name}")
    return value


def _check_unicode(text: str, where: str) -> None:
    # JSON can spell half a character ("\ud800"); no database or file would take it.
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Unreadable(f"{_shown(text)} is not valid Unicode - '{where}'") from None


def _wrong_type(value: Json, wanted: str, where: str) -> str:
    place = f" - '{where}'" if where else ""
    return f"{_shown(value)} is not of type '{wanted}'{place}"


def _shown(value: Json) -> str:
    # Not what is inside an object or array: a payload may be 256 KiB, and deep.
    if isinstance(value, dict | list):
        return "{…}" if isinstance(value, dict) else "[…]"
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"
