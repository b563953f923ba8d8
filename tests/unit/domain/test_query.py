"""The language of search boxes: what a text asks for, how it is written, and what is wrong."""

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.domain import limits
from headrace.domain.errors import InvalidRequest
from headrace.domain.filters import STATE_WORDS, TaskFilter
from headrace.domain.fingerprints import fingerprint
from headrace.domain.indexing import fields_fault
from headrace.domain.limits import QUERY
from headrace.domain.query import Query, narrow, query_text, read
from headrace.domain.task import Priority
from headrace.domain.texts import path_of, read_payload, text_at

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("state:dead", TaskFilter(states=("DEAD",))),
        ("STATE:Ready,running", TaskFilter(states=("READY", "running"))),
        ('tag:"a,b"="c=d" tag:x=1,2', TaskFilter(tags={"a,b": "c=d", "x": "1,2"})),
        ("tag:x=", TaskFilter(tags={"x": ""})),
        ("mailbox  is full", TaskFilter(error="mailbox is full")),
        ('"state:dead"', TaskFilter(error="state:dead")),
        (r'payload."odd key".0:"a \"b\""', TaskFilter(payload={'"odd key".0': 'a "b"'})),
        ("tsk_01j", TaskFilter(id_prefix="tsk_01j")),
        ("id:order-7", TaskFilter(id_prefix="order-7")),
        ("attempts:3 worker:a:1", TaskFilter(min_attempts=3, worker="a:1")),
        ("priority:high group:g", TaskFilter(priority=Priority.HIGH, group_key="g")),
        ("after:2026-11-21T12:00", TaskFilter(scheduled_after=NOON)),
        ("before:2026-11-21T13:00+01:00", TaskFilter(scheduled_before=NOON)),
        ("after:1h30m", TaskFilter(scheduled_after=5_400)),
        ("tag:x task:mail.send", TaskFilter(tags={"x": None}, payload={"task": "mail.send"})),
        ("version:2.1", TaskFilter(version="2.1")),
        ("payload:acme", TaskFilter(payload_text="acme")),
        (
            "-tag:x -Timeout full",
            TaskFilter(
                error="full", without=(TaskFilter(tags={"x": None}), TaskFilter(error="Timeout"))
            ),
        ),
        ("NOT worker:a", TaskFilter(without=(TaskFilter(worker="a"),))),
        ("state:dead OR state:ready", TaskFilter(states=("DEAD", "READY"))),
        ("-state:dead,running", TaskFilter(states=("SCHEDULED", "READY", "SUCCEEDED"))),
        (
            "attempts:1 tag:a=1 OR -tag:b no answer OR timed out",
            TaskFilter(
                min_attempts=1,
                either=(
                    (
                        TaskFilter(tags={"a": "1"}),
                        TaskFilter(without=(TaskFilter(tags={"b": None}),)),
                    ),
                    (TaskFilter(error="no answer"), TaskFilter(error="timed out")),
                ),
            ),
        ),
    ],
)
def test_terms_say_which_tasks_are_meant(text: str, where: TaskFilter) -> None:
    assert read(text) == Query(where)


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("staet:dead", 1, "staet is no key"),
        ("x state:asleep", 3, "state must be one or more of"),
        ("tag:a=1 tag:a=2", 9, "tag a is named twice"),
        ("worker:", 1, "worker needs a value"),
        ('tag:a="b"c', 7, "a quote does not end, or has something at its end"),
        ("attempts:many", 1, "attempts must be a whole number"),
        ("after:noon", 1, "after must be a date and time"),
        ("queue:no/name", 1, "queue must be a queue's name"),
        (f"tag:a={'v' * 257}", 1, "tag a must be at most 256 bytes"),
        ("full error:x", 13, "words beside error:"),
        ('x ""', 3, "nothing stands between the quotes"),
        ("OR x", 1, "OR must stand between two terms"),
        ("x OR", 5, "OR must stand between two terms"),
        ("x -after:1h", 3, "after cannot be excluded"),
        ("state:dead OR worker:a", 1, "state cannot be excluded, or joined by OR to other keys"),
        ("-state:pending,SUCCEEDED,DEAD", 1, "state excludes every state"),
        ("after:99999d", 1, "after must be a date and time"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, at: int, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(text)

    (error,) = refused.value.errors
    assert error.field == "query"
    assert error.message.startswith(f"at character {at}: ")
    assert says in error.message


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="at most 2000 characters"):
        read("x" * (QUERY + 1))


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
SOME = TEXT.filter(bool)
PATHS = st.lists(SOME, min_size=1, max_size=3).map(tuple).map(path_of)
PATHS = PATHS.filter(lambda path: len(path.encode()) <= limits.PAYLOAD_PATH_BYTES)
NAMES = st.from_regex(limits.NAME_RE, fullmatch=True)
TIMES = st.none() | st.datetimes(timezones=st.just(UTC)) | st.just(108_000)
ONE = st.one_of(
    st.builds(lambda key, value: TaskFilter(tags={key: value}), SOME, st.none() | TEXT),
    st.builds(TaskFilter, error=SOME),
    st.builds(TaskFilter, version=SOME),
    st.builds(lambda path, value: TaskFilter(payload={path: value}), PATHS, TEXT),
)
ONE_OR_OTHER = ONE | ONE.map(lambda one: TaskFilter(without=(one,)))
WHERE = st.builds(
    TaskFilter,
    states=st.lists(st.sampled_from(STATE_WORDS), max_size=2, unique=True).map(tuple),
    tags=st.dictionaries(SOME, st.none() | TEXT, max_size=3),
    worker=st.none() | SOME,
    payload_text=st.none() | SOME,
    version=st.none() | SOME,
    either=st.lists(st.tuples(ONE_OR_OTHER, ONE_OR_OTHER), max_size=2).map(tuple),
    without=st.lists(ONE, max_size=2).map(tuple),
    scheduled_after=TIMES,
    scheduled_before=TIMES,
    min_attempts=st.none() | st.integers(0, 1_000),
    error=st.none() | SOME,
    fingerprint=st.none() | st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
    priority=st.none() | st.sampled_from(Priority),
    group_key=st.none() | SOME,
    payload=st.dictionaries(PATHS, TEXT, max_size=2),
    id_prefix=st.none() | st.from_regex(limits.TASK_ID_RE, fullmatch=True),
)


@settings(max_examples=30)
@given(WHERE, st.none() | NAMES)
def test_what_is_written_is_read_again_as_it_was(where: TaskFilter, queue: str | None) -> None:
    query = Query(where, queue)

    assert read(query_text(query)) == query
    assert TaskFilter.of_fields(where.fields()) == where


@given(st.text(st.sampled_from('ab:="\\,. \n{}payloadtagstate-OR'), max_size=30))
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        found = read(text)
    except InvalidRequest:
        return
    assert read(query_text(found)) == found


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("big", "12345678901234567890123"),
        ("price", "1.50"),
        ("paid", "true"),
        ("note", "null"),
        ("items.1.sku", "b"),
        ('"odd key"', "x"),
        ("items", None),
        ("items.x", None),
        ("missing", None),
    ],
)
def test_a_path_leads_to_the_text_of_one_value(path: str, text: str | None) -> None:
    payload = (
        '{"order": 77, "big": 12345678901234567890123, "price": 1.50, "paid": true, "note": null,'
        ' "to": {"name": "Ada"}, "items": [{"sku": "a"}, {"sku": "b"}], "odd key": "x"}'
    )

    assert text_at(read_payload(payload), path) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tag:=b", 'tag must be tag:key, tag:key=value or tag:"a key"="a value"'),
        (f"payload.{'a' * 300}:x", "payload path must be at most"),
        ("payload.a:1 payload.a:2", "payload.a is named twice"),
        (f"payload.a:{'x' * 1900}", "payload.a must be at most"),
        (" ".join(f"payload.p{n}:1" for n in range(limits.TAGS + 1)), "payload must have at most"),
        ("fingerprint:xyz", "fingerprint must be 16 digits from 0 to f"),
        ("id:a/b", "id must be an id or how it begins"),
        ('worker:""', "worker must not be empty"),
    ],
)
def test_a_term_that_is_wrong_says_what_it_must_be(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(says)):
        read(text)


def test_a_query_narrows_what_the_request_names_already() -> None:
    where = TaskFilter(tags={"b": "2"}, worker="w")

    assert narrow("tag:a=1 attempts:0 queue:mail", where, "mail") == TaskFilter(
        tags={"a": "1", "b": "2"}, worker="w", min_attempts=0
    )


@pytest.mark.parametrize(
    ("text", "queue", "says"),
    [
        ("queue:post", "mail", "names queue post, and the request queue mail"),
        ("queue:post", None, "names queue post, and the request its queues in another way"),
        ("worker:v", "mail", "names worker, which the request names besides"),
        ("tag:b=3", "mail", "names a tag, which the request names besides"),
    ],
)
def test_a_query_may_not_name_what_the_request_names_too(
    text: str, queue: str | None, says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        narrow(text, TaskFilter(tags={"b": "2"}, worker="w"), queue)


@pytest.mark.parametrize("payload", [None, "{", "[" * 100_000])
def test_a_payload_that_is_no_json_has_no_values(payload: str | None) -> None:
    assert text_at(read_payload(payload), "a") is None


def test_a_path_that_is_none_or_leads_into_a_text_leads_nowhere() -> None:
    content = read_payload('{"a": "b"}')

    assert text_at(content, "a..b") is None
    assert text_at(content, "a.b") is None


# -- fields that queues index ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        (["tag:tenant", "payload.order.id"], None),
        (['tag:"a'], "in quotes as in JSON"),
        ([f"tag:{'k' * 300}"], "must be at most"),
        (["payload.a..b"], "must be payload. and names with dots between"),
        ([f"payload.{'a' * 300}"], "must be at most"),
        (["worker"], "must be tag:key or payload.path"),
        (["tag:a", 'tag:"a"'], "must name each field once"),
        ([f"tag:t{n}" for n in range(limits.INDEXED + 1)], f"at most {limits.INDEXED} tags"),
    ],
)
def test_fields_that_cannot_be_indexed_are_refused(fields: list[str], fault: str | None) -> None:
    found = fields_fault(fields)

    assert (found is None) if fault is None else fault in (found or "")


# -- fingerprints of errors ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no answer after 30 s", "no answer after 3.5 s"),
        ("no task tsk_01kx3v9m2p4q6r8s0t2v4w6y8z", "no task tsk_01kx3v9m2p4q6r8s0t2v4w6y90"),
        (
            "order 6fa459ea-ee8a-3ca4-894e-db77e160355e is gone",
            "order 16fd2706-8baf-433b-82eb-8c7fada847da is gone",
        ),
        ("at 0x7f3991 of deadbeef01", "at 0x7fffff of cafe0123"),
        ("at 2026-11-21T08:00:00.1Z", "at 2025-01-02T03:04:05.6Z"),
        ("no route to db-7.eu.example.com:5432", "no route to replica.example.net:5433"),
        ("refused by https://a.example.org/v1?x=1", "refused by http://10.0.0.7/health"),
        ("550 ada.l+x@example.org is unknown", "551 bob@mail.example.com is unknown"),
        ("from 2001:db8::8a2e:370:7334 to bat_01kx3v9m", "from fe80::1:2 to bat_01kx3v9n"),
        ("charge ch_3Mmlq2eZvKYlo2C failed", "charge ch_1Nbx9a0KYlo2Cvv failed"),
    ],
)
def test_what_is_particular_to_one_task_makes_no_difference(one: str, other: str) -> None:
    assert fingerprint("Fault", one) == fingerprint("Fault", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("Timeout", "no answer"), ("Refused", "no answer")),
        (("Timeout", "no answer"), ("Timeout", "no room")),
        (("a", "b"), ("", "a\nb")),
        (("Import", "no module shop.mail.send"), ("Import", "no module shop.sms.send")),
        (("", ""), ("", "expired")),
    ],
)
def test_other_faults_have_other_fingerprints(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert fingerprint(*one) != fingerprint(*other)
