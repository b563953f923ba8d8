"""Splitting notifications into rows, by QuantumLeap's rules."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.ngsi import traffic
from examples.ngsi.ngsi import Attribute, Row, Unreadable, parse, split
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


def test_ngsi_ld_properties_get_the_type_of_their_value() -> None:
    (row,) = split(notification("06"), {}, RECEIVED)

    types = {name: attribute.type for name, attribute in row.attributes.items()}
    assert "@context" not in types
    assert types["areaServed"] == "Text"
    assert types["lanternHeight"] == "Integer"
    assert types["dateLastLampChange"] == "DateTime"
    assert types["location"] == "GeoProperty"
    assert types["refStreetlightGroup"] == "Relationship"
    assert values(row)["dateLastLampChange"] == "2016-07-08T08:02:21.753000Z"
    group = "urn:ngsi-ld:StreetlightGroup:streetlightgroup:G345"
    assert values(row)["refStreetlightGroup"] == group


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


def test_a_value_nested_too_deep_is_refused() -> None:
    deep: Json = 1
    for _ in range(500):
        deep = [deep]

    with pytest.raises(Unreadable, match=r"nested more than 100 levels deep - 'data\.0\.a'"):
        rows_of({"id": "1", "type": "T", "a": {"type": "Array", "value": deep}})


def test_service_and_path_come_from_the_headers() -> None:
    (row,) = rows_of(
        {"id": "1", "type": "T", "a": {"type": "Number", "value": 1}},
        fiware_service="smartcity",
        fiware_servicepath="/rooms",
    )

    assert (row.service, row.service_path) == ("smartcity", "/rooms")


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


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({"value": 37, "unitCode": "CEL"}, Attribute("Integer", 37, "CEL")),
        ({"object": "urn:a"}, Attribute("Relationship", "urn:a")),
        ({"languageMap": {"en": "a"}}, Attribute("LanguageProperty", {"en": "a"})),
        ({"json": None, "value": 1}, Attribute("Integer", 1)),
        ({"objectList": ["urn:a", {"object": "urn:b"}]},
         Attribute("ListRelationship", ["urn:a", "urn:b"])),
        ({"street": "Main", "type": "home"},
         Attribute("StructuredValue", {"street": "Main", "type": "home"})),
        (["a", "b"], Attribute("Array", ["a", "b"])),
        (True, Attribute("Boolean", value=True)),
        ("2016-12-31", Attribute("Text", "2016-12-31")),
        ([], Attribute("Array", [])),
    ],
)  # fmt: skip
def test_concise_and_simplified_attributes_have_their_values(
    attribute: Json, expected: Attribute
) -> None:
    (row,) = rows_of({"id": "1", "type": "T", "a": attribute})
    assert row.attributes == {"a": expected}


def test_an_attribute_without_a_value_is_named() -> None:
    entity: Json = {"id": "1", "type": "T", "a": {"metadata": {}}, "b": None, "c": {"value": 1}}
    odd: Json = {"id": "2", "type": "T", "n": {"type": "Number", "value": "x"}}

    parsed = parse({"data": [entity, odd]}, {}, RECEIVED)

    assert parsed.without_value == ["data.0.a", "data.0.b", "data.1.n"]
    assert len(parsed.rows) == 1


def test_two_instances_without_a_dataset_are_refused_by_name() -> None:
    with pytest.raises(Unreadable, match=r"comes twice.*'data\.0\.a'"):
        rows_of({"id": "1", "type": "T", "a": [{"value": 1}, {"value": 2}]})


def test_a_tenant_is_a_service_and_a_long_service_path_is_in_the_payload() -> None:
    path = "/" + "a" * 400
    body: Json = {"data": [{"id": "1", "type": "T", "a": 1}], "fiware-servicepath": path}
    tags = {"ngsild-tenant": "city", "fiware-servicepath": path[:256]}

    (row,) = split(body, tags, RECEIVED)

    assert (row.service, row.service_path) == ("city", path)


def test_as_many_service_paths_as_entities_or_none() -> None:
    with pytest.raises(Unreadable, match=r"^2 service paths for 1 entities"):
        rows_of({"id": "1", "type": "T"}, fiware_servicepath="/a,/b")


@pytest.mark.parametrize(
    "attributes",
    [{}, {"a": {"type": "Number"}, "b": {"type": "Number", "value": " "}}],
)
def test_an_entity_without_any_value_gives_no_row(attributes: dict[str, Json]) -> None:
    assert rows_of({"id": "1", "type": "T", **attributes}) == []


def test_every_notification_of_the_demo_has_the_outcome_it_announces() -> None:
    for each in traffic.notifications(400):
        body: Json = json.loads(each.body_bytes())
        if each.error is None:
            assert split(body, each.headers, RECEIVED)
            continue
        with pytest.raises(Unreadable) as refused:
            split(body, each.headers, RECEIVED)
        assert str(refused.value) == each.error
