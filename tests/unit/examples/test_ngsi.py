"""Splitting notifications into rows, by QuantumLeap's rules."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.ngsi import traffic
from examples.ngsi.ngsi import Row, Unreadable, parse, split
from examples.ngsi.values import Json

RECEIVED = datetime(2026, 11, 21, 8, 0, 0, 250, tzinfo=UTC)


def notification(name: str) -> Json:
    """One of the real notifications, by the number its file begins with."""
    path = next(traffic.FOLDER.glob(f"{name}_*.json"))
    body: Json = json.loads(path.read_text(encoding="utf-8"))
    return body


def rows_of(*entities: Json, **tags: str) -> list[Row]:
    headers = {name.replace("_", "-"): value for name, value in tags.items()}
    return split({"data": list(entities)}, headers, RECEIVED)


def values(row: Row) -> dict[str, Json]:
    return {name: attribute.value for name, attribute in row.attributes.items()}


def test_each_entity_becomes_a_row_with_the_time_of_its_metadata() -> None:
    rows = split(notification("01"), {}, RECEIVED)

    assert [(row.entity_id, row.entity_type, values(row)) for row in rows] == [
        ("Kitchen", "Room", {"temperature": 24.2}),
        ("Bedroom1", "Room", {"temperature": 26.4}),
    ]
    assert {row.time_index for row in rows} == {"2017-06-19T11:46:45.000000Z"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "[…] is not of type 'object'"),
        ({}, "'data' is a required property"),
        ({"data": {"id": "a", "type": "T"}}, "{…} is not of type 'array' - 'data'"),
        ({"data": [{"type": "Room"}]}, "'id' is a required property - 'data.0'"),
        ({"data": [{"id": 5, "type": "Room"}]}, "5 is not of type 'string' - 'data.0.id'"),
        (
            {"data": [{"id": "\ud800", "type": "Room"}]},
            "'\\ud800' is not valid Unicode - 'data.0.id'",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_place_of_the_fault(
    body: Json, message: str
) -> None:
    with pytest.raises(Unreadable) as refused:
        split(body, {}, RECEIVED)

    assert str(refused.value) == message


def test_a_list_of_service_paths_goes_by_the_order_of_the_entities() -> None:
    # The second entity says nothing and gives no row; the third keeps its own path.
    rows = rows_of(
        {"id": "1", "type": "T", "a": {"type": "Number", "value": 1}},
        {"id": "2", "type": "T"},
        {"id": "3", "type": "T", "a": {"type": "Number", "value": 3}},
        fiware_servicepath="/a, /b, /c",
    )

    assert [(row.entity_id, row.service_path) for row in rows] == [("1", "/a"), ("3", "/c")]


CASES = Path(__file__).parent / "notifications"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("keyvalues_v2", {"temperature": ("Integer", 23), "humidity": ("Integer", 70)}),
        (
            "keyvalues_ld",
            {
                "NO2": ("Number", 37.040001),
                "location": ("GeoProperty", {"type": "Point", "coordinates": [-1.22, 37.96]}),
            },
        ),
        (
            "ld_attribute_kinds",
            {
                "temperature": ("Number", 21.5),
                "label": ("LanguageProperty", {"fr": "ruche", "it": "alveare"}),
                "category": ("VocabProperty", ["honey", "wax"]),
                "blob": ("JsonProperty", {"id": "1", "nothing": None}),
                "hours": ("ListProperty", [1, 2, 3]),
                "isIn": ("ListRelationship", ["urn:ngsi-ld:Yard:1", "urn:ngsi-ld:Yard:2"]),
            },
        ),
        (
            "ld_dataset_ids",
            {
                "incoming@urn:ngsi-ld:Dataset:a": ("Integer", 1543),
                "incoming@urn:ngsi-ld:Dataset:b": ("Integer", 1618),
            },
        ),
        (
            "ld_texts_that_look_like_dates",
            {
                "serial": ("Text", "20161231"),
                "lot": ("Text", "2016W011"),
                "installed": ("DateTime", "2016-12-31T10:00:00.000000Z"),
            },
        ),
        ("ld_two_types", {"temperature": ("Number", 21.5)}),
    ],
)
def test_every_shape_of_a_notification_gives_all_its_values(
    name: str, expected: dict[str, tuple[str, Json]]
) -> None:
    body = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))

    parsed = parse(body, {}, RECEIVED)

    (row,) = parsed.rows
    assert {key: (one.type, one.value) for key, one in row.attributes.items()} == expected
    assert parsed.without_value == []


def test_every_notification_of_the_demo_has_the_outcome_it_announces() -> None:
    for each in traffic.notifications(400):
        body: Json = json.loads(each.body_bytes())
        if each.error is None:
            assert split(body, each.headers, RECEIVED)
            continue
        with pytest.raises(Unreadable) as refused:
            split(body, each.headers, RECEIVED)
        assert str(refused.value) == each.error
