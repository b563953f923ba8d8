"""Types and values of attributes, and the time of a row, as QuantumLeap has them."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from examples.ngsi.values import Json, instant_text, time_index, typed_value

RECEIVED = datetime(2026, 11, 21, 8, tzinfo=UTC)
DAY = "2017-06-19T11:46:45.000000Z"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("Number", 1, 1.0),
        ("Number", " 1.5 ", 1.5),
        ("Number", "NaN", None),
        ("Integer", 720, 720),
        ("Integer", True, None),
        ("Boolean", "TRUE", True),
        ("Boolean", "yes", None),
        ("DateTime", "2017-06-19T13:46:45+02:00", DAY),
        ("Text", "", ""),
        ("Text", 1, 1),
        ("Array", "a", None),
        (
            "geo:json",
            {"type": "Point", "coordinates": [1, 2]},
            {"type": "Point", "coordinates": [1, 2]},
        ),
        ("Unknown", float("inf"), None),
    ],
)
def test_a_value_fits_its_declared_type_or_becomes_null(
    kind: str, value: Json, expected: Json
) -> None:
    got = typed_value({"type": kind, "value": value})

    # As JSON, because 1, 1.0 and True are equal in Python and not the same reading.
    assert json.dumps(got) == json.dumps((kind, expected))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("off", ("Text", "off")),
        (10, ("Integer", 10)),
        (False, ("Boolean", False)),
        ({"a": 1}, ("StructuredValue", {"a": 1})),
        ("2017-06-19T11:46:45Z", ("DateTime", DAY)),
        ({"@type": "DateTime", "@value": "2017-06-19T11:46:45Z"}, ("DateTime", DAY)),
    ],
)
@pytest.mark.parametrize("attribute", [{}, {"type": "Property"}])
def test_a_property_and_an_attribute_without_type_take_the_type_of_their_value(
    attribute: dict[str, Json], value: Json, expected: tuple[str, Json]
) -> None:
    assert typed_value({**attribute, "value": value}) == expected


def day(number: int) -> str:
    return instant_text(datetime(2019, 1, 1, tzinfo=UTC) + timedelta(days=number))


# Every place a time can stand in, first choice first.
PLACES = (
    ("own", None),
    ("own", "metadata"),
    ("TimeInstant", None),
    ("TimeInstant", "metadata"),
    ("timestamp", None),
    ("timestamp", "metadata"),
    ("observedAt", "sub-attribute"),
    ("modifiedAt", "sub-attribute"),
    ("observedAt", "of the entity"),
    ("modifiedAt", "of the entity"),
    ("dateModified", None),
    ("dateModified", "metadata"),
)


@pytest.mark.parametrize("first", range(0, len(PLACES), 3))
def test_the_first_place_that_holds_a_time_gives_the_time_index(first: int) -> None:
    entity: dict[str, Json] = {}
    one: dict[str, Json] = {"value": 1, "metadata": {}}
    other: dict[str, Json] = {"value": 2, "metadata": {}}
    for number, (name, place) in enumerate(PLACES):
        # The later of two counts, and what is no time counts for nothing.
        text, older = (day(number), day(number - 30)) if number >= first else (" ", "10")
        if place is None:
            entity[name] = {"value": text}
        elif place == "of the entity":
            entity[name] = text
        elif place == "sub-attribute":
            one[name], other[name] = older, text
        else:
            for attribute, value in ((one, text), (other, older)):
                metadata = attribute["metadata"]
                assert isinstance(metadata, dict)
                metadata[name] = {"value": value}
    entity |= {"one": one, "other": other}

    assert instant_text(time_index(entity, "own", RECEIVED)) == day(first)
