"""A client's own values keep their text; everything that is not strictly JSON is refused."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.domain.errors import InvalidRequest
from headrace.http.enqueue import EnqueueBody
from headrace.http.rawjson import (
    MEMBERS,
    JsonText,
    decode,
    shortest,
)

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)
spaces = st.text(alphabet=" \t\r\n", max_size=3)


@settings(max_examples=30)
@given(value=values, ascii_only=st.booleans(), space=spaces, indent=st.none() | st.just(1))
@example(value="\ud83d\ude00", ascii_only=True, space="", indent=None)
@example(value={'"': "\\"}, ascii_only=False, space=" ", indent=None)
def test_any_json_value_survives_byte_for_byte(
    *, value: Any, ascii_only: bool, space: str, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    body = f'{{"tasks":{space}[{space}{{"payload"{space}:{space}{text}{space}}}{space}]{space}}}'

    (task,) = decode(body, EnqueueBody)["tasks"]

    assert task["payload"] == text
    assert isinstance(task["payload"], JsonText)


@pytest.mark.parametrize(
    "text",
    [
        "1.10",
        "-0",
        "1e999",
        "9" * 6000,
        '"\\u00e9\\/\\ud83d\\ude00"',
        '"\\ud800"',
        '{"a":1,"a":2}',
    ],
)
def test_the_way_a_value_is_written_is_kept(text: str) -> None:
    assert (
        decode(f'{{"tasks":[{{"payload": {text} }}]}}', EnqueueBody)["tasks"][0]["payload"] == text
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "not JSON"),
        ('{"a":1,}', "not JSON"),
        ("{'a':1}", "double quotes"),
        ('{"a":1} {"a":1}', "extra data"),
        ("\ufeff{}", "not JSON"),
        ('{"a":"\n"}', "control character"),
        ('{"a":"\\x"}', "escape"),
        ('{"a":01}', "not JSON"),
        ('{"a":NaN}', "NaN"),
        ('{"tasks":[{"payload":[{"x":-Infinity}]}]}', "-Infinity"),
        ('{"tasks":[{"payload":1.}]}', "not JSON"),
        ('{"tasks":[{"payload":1} {"payload":1}]}', "','"),
        ('{"tasks":[{"payload":' + "[" * 200_000, "nested too deeply"),
        ('{"a":' + '{"a":' * 200_000, "nested too deeply"),
        ('{"a":' + "1" * 5000 + "}", "too many digits"),
        ("[]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ('{"tasks":[{"payload":"\\ud800","id":x}]}', "line 1 column 36"),
    ],
    ids=lambda text: text[:40],
)
def test_what_is_not_one_strict_json_object_is_refused(body: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as refused:
        decode(body, EnqueueBody)
    assert [error.field for error in refused.value.errors] == ["body"]


def _members(count: int) -> str:
    return json.dumps({f"m{number}": number for number in range(count)})


@pytest.mark.parametrize(
    "frame", ["%s", '{"a":%s}', '{"tasks":[%s]}', '{"tasks":[{"tags":%s}]}'], ids=str
)
def test_objects_of_ours_are_bounded(frame: str) -> None:
    decode(frame % _members(MEMBERS), EnqueueBody)

    with pytest.raises(InvalidRequest, match=f"more than {MEMBERS} members"):
        decode(frame % _members(MEMBERS + 1), EnqueueBody)


@settings(max_examples=30)
@given(value=values, ascii_only=st.booleans(), space=spaces, indent=st.none() | st.just(1))
@example(value="\U0001f600", ascii_only=True, space="", indent=None)
@example(value={'a "\\ ': "\\n  "}, ascii_only=False, space=" ", indent=1)
def test_the_shortest_text_means_the_same(
    *, value: Any, ascii_only: bool, space: str, indent: int | None
) -> None:
    text = space + json.dumps(value, ensure_ascii=ascii_only, indent=indent) + space

    short = shortest(JsonText(text), len(text))

    assert short is not None
    assert json.loads(short) == value
    assert len(short) <= len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
