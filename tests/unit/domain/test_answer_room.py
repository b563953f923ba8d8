"""What Lambda lets out: texts and tasks are measured as they go out, never too small."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import simplejson
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.ids import new_lease_token
from headrace.domain.limits import (
    ANSWER_BYTES,
    SENT_BYTES,
    AnswerRoom,
    sent_bytes,
    utf8_bytes,
)
from headrace.domain.task import (
    SHOWN_STATES,
    DeadReason,
    ErrorKind,
    Hop,
    Place,
    Task,
    TaskError,
)
from headrace.http import task_answers
from headrace.ops.delivery.dequeue import DequeueResult
from headrace.wire.base import to_json

NOW = datetime(2026, 11, 21, 8, 0, 0, 123456, tzinfo=UTC)
# Everything that takes more room as it goes out than it does as it is, and what does not.
TEXTS = st.text(st.sampled_from('a"\\\n\t\r\x00\x7f éα€\u2028\u2029😀'), max_size=20)
NAMES = st.text(st.sampled_from("aZ09_.-"), min_size=1, max_size=128)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
JSON_TEXTS = st.builds(
    json.dumps, JSON, ensure_ascii=st.booleans(), indent=st.sampled_from([None, 0, "\t"])
)
ERRORS = st.builds(
    TaskError,
    attempt=st.integers(1, 101),
    at=st.just(NOW),
    worker=st.none() | TEXTS,
    kind=st.sampled_from(ErrorKind),
    type=TEXTS,
    message=TEXTS,
    detail=TEXTS,
)
TASKS = st.builds(
    Task,
    id=st.text(st.sampled_from("aZ0_-"), min_size=1, max_size=64),
    place=st.builds(Place, NAMES, st.sampled_from(SHOWN_STATES), st.just(0)),
    scheduled_at=st.just(NOW),
    due_at=st.just(NOW),
    created_at=st.just(NOW),
    enqueued_at=st.just(NOW),
    payload=JSON_TEXTS,
    tags=st.dictionaries(TEXTS, TEXTS, max_size=10),
    dedupe_key=st.none() | TEXTS,
    schedule=st.none() | NAMES,
    expires_at=st.just(NOW),
    keepalive=st.just(43_200.123456),
    attempts=st.integers(0, 101),
    lease_id=st.just(new_lease_token()),
    lease_expires_at=st.just(NOW + timedelta(hours=12)),
    worker=st.none() | TEXTS,
    progress=st.none() | JSON_TEXTS,
    started_at=st.just(NOW),
    finished_at=st.just(NOW),
    result=st.none() | JSON_TEXTS,
    dead_reason=st.sampled_from(DeadReason),
    errors=st.lists(ERRORS, max_size=20).map(tuple),
    trail=st.lists(st.builds(Hop, NAMES, st.just(NOW)), max_size=50).map(tuple),
    retained_until=st.just(NOW),
)


def by_lambda(answer: Any) -> int:
    """How many bytes Lambda's client for Python 3.13 makes of an answer."""
    return len(simplejson.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogatepass"))


@given(JSON_TEXTS)
def test_a_text_of_json_is_measured_as_lambdas_client_writes_it(text: str) -> None:
    separators = text.count("\u2028") + text.count("\u2029")  # some of its versions escape them

    assert by_lambda(text) - 2 + 3 * separators >= sent_bytes(text) >= by_lambda(text) - 2
    assert separators or sent_bytes(text) == by_lambda(text) - 2


@given(TASKS)
def test_a_task_never_takes_more_than_was_reckoned(task: Task) -> None:
    found = DequeueResult((task,), 0, NOW)
    (leased,) = task_answers.dequeued_answer(found, max_retries=lambda _: 100).tasks
    shown = to_json(leased)
    room = AnswerRoom()

    assert room.takes_task(task)
    assert ANSWER_BYTES - room.text > utf8_bytes(shown)
    assert SENT_BYTES - room.sent > sent_bytes(shown)
