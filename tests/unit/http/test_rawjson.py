"""A client's own values keep their text; everything that is not strictly JSON is refused."""

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.domain.errors import InvalidRequest
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


@given(value=values, ascii_only=st.booleans(), space=spaces, indent=st.none() | st.just(1))
@example(value="\ud83d\ude00", ascii_only=True, space="", indent=None)
@example(value={'"': "\\"}, ascii_only=False, space=" ", indent=None)
def test_any_json_value_survives_byte_for_byte(
    *, value: Any, ascii_only: bool, space: str, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    body = f'{{"tasks":{space}[{space}{{"payload"{space}:{space}{text}{space}}}{space}]{space}}}'

    (task,) = decode(body)["tasks"]

    assert task["payload"] == text
    assert isinstance(task["payload"], JsonText)


@given(value=values)
def test_every_kind_of_body_is_read_as_the_standard_library_reads_it(value: Any) -> None:
    reports = [{"task_id": "a", "tags": value, "result": value}, value]
    body = json.dumps({"other": value, "reports": reports, "tasks": value})

    found = decode(body)

    assert json.dumps(found["other"]) == json.dumps(value)
    assert json.dumps(found["reports"][0]["tags"]) == json.dumps(value)
    assert json.loads(found["reports"][0]["result"]) == value


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
    assert decode(f'{{"tasks":[{{"payload": {text} }}]}}')["tasks"][0]["payload"] == text


def test_the_last_of_two_members_with_one_name_counts() -> None:
    assert decode('{"a":1,"a":2}') == {"a": 2}
    assert decode('{"tasks":[{"payload":1,"payload":2}]}')["tasks"] == [{"payload": "2"}]


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
        decode(body)
    assert [error.field for error in refused.value.errors] == ["body"]


def _members(count: int) -> str:
    return json.dumps({f"m{number}": number for number in range(count)})


@pytest.mark.parametrize(
    "frame", ["%s", '{"a":%s}', '{"tasks":[%s]}', '{"tasks":[{"tags":%s}]}'], ids=str
)
def test_objects_of_ours_are_bounded(frame: str) -> None:
    decode(frame % _members(MEMBERS))

    with pytest.raises(InvalidRequest, match=f"more than {MEMBERS} members"):
        decode(frame % _members(MEMBERS + 1))


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


_WHOLE_BODY = 4 * 1024 * 1024


@pytest.mark.parametrize(
    ("frame", "entry"),
    [
        ('{"tasks":[%s]}', "{}"),
        ('{"reports":[{"spawn":[%s]}]}', "1"),
        ('{"tasks":[{"payload":1,"tags":{"a":[%s]}}]}', "[]"),
    ],
)
def test_a_body_of_very_many_values_costs_little(frame: str, entry: str) -> None:
    """What is refused for its number of entries is not decoded entry by entry before."""
    body = frame % ",".join([entry] * (_WHOLE_BODY // (len(entry) + 1)))

    began = time.thread_time()
    json.loads(body)
    read = time.thread_time() - began
    with suppress(InvalidRequest):
        assert decode(body)

    assert time.thread_time() - began - read < 5 * read  # entry by entry it is ten times as much
