"""What Lambda hands on of the stream is read as the same writes that the tasks would tell."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.domain.task import FINISHED, Place, Task
from headrace.domain.write import StoredView, TaskView, TaskWrite
from headrace.history.changelog import line
from headrace.history.transitions import UnreadableImage, index_entry, transition
from headrace.store.items import to_item
from headrace.store.stream import SIZES, ImageView, writes_of
from tests.streamed import stream_records
from tests.unit.store.test_items import NOW, instants, names, payloads, tasks, texts

FIELDS = tuple(name for name in vars(TaskView) if isinstance(vars(TaskView)[name], property))
NOT_OF_SPENT = {"label", "scheduled_at", "hops", "latest_error"}
"""What is not stored with what is left of a task that is gone, and nobody asks it for."""

moves = st.sampled_from(
    ["enqueue", "dequeue", "fail", "reclaim", "move", "restart", "succeed", "release"]
)
leases = texts | st.sampled_from(["lsg_" + "0" * 20 + "_" + "0" * 16 + ":token"])
lively = st.builds(
    replace,
    tasks,
    last_move=moves,
    lease_id=st.none() | leases,
    started_at=instants,
    finished_at=st.none() | instants,
)
left_over = st.builds(
    lambda task, ended: replace(task, spent=ended, place=ended, scheduled_at=task.created_at),
    lively,
    st.builds(Place, names, st.sampled_from(sorted(FINISHED)), st.integers(0, 63)),
)
sides = st.none() | lively | left_over
FIFTY = settings(max_examples=50)  # they find each field of an image that is wrong


def of_stream(write: TaskWrite, **more: Any) -> TaskWrite:
    """Return *write* as it comes by the stream, with *more* in both of its images."""
    (record,) = json.loads(json.dumps(stream_records([write])))
    for name in {"OldImage", "NewImage"} & record["dynamodb"].keys():
        record["dynamodb"][name] |= more
    (read,), unreadable = writes_of([record])
    assert not unreadable
    return read


def recorded(write: TaskWrite) -> Any:
    """Return all that the recorder makes of *write*, lines as the text that they become."""
    try:
        change = transition(write)
        lines = [
            json.dumps(line(write, change, shard="s", payload=payload)) for payload in (False, True)
        ]
    except UnreadableImage:
        return None  # its words may differ
    return change, lines, index_entry(write.before), index_entry(write.after)


@given(lively | left_over)
@FIFTY
def test_an_image_shows_of_a_task_what_the_task_shows(task: Task) -> None:
    image = ImageView(json.loads(json.dumps(to_item(task))))
    fields = [*FIELDS]
    if task.spent is None:
        fields.remove("ended")
    else:
        fields = [name for name in fields if name not in NOT_OF_SPENT]

    shown = {name: getattr(image, name) for name in fields}

    assert len(FIELDS) > 20
    if task.spent is None:
        assert image.whole() == task
    assert shown == {name: getattr(StoredView(task), name) for name in fields}


writes = st.builds(
    TaskWrite.of,
    st.just(7),
    sides,
    sides,
    at=instants.map(lambda at: at.replace(microsecond=0)),  # the stream tells it to the second
    forgotten=st.booleans(),
)


@given(writes)
@FIFTY
def test_the_recorder_makes_the_same_of_a_write_whichever_way_it_comes(write: TaskWrite) -> None:
    assert recorded(of_stream(write)) == recorded(write)
    assert recorded(of_stream(write, later={"BOOL": True})) == recorded(write)


@pytest.mark.slow
@given(lively | left_over, lively | left_over, st.booleans())
@FIFTY
def test_a_log_may_keep_sizes_of_payloads_and_only_those_that_are_new(
    before: Task,
    after: Task,
    same: bool,  # noqa: FBT001  (a case)
) -> None:
    after = replace(after, payload=before.payload) if same else after
    new = after.payload if after.payload != before.payload else None
    whole = TaskWrite.of(7, before, after, at=NOW)

    lean = TaskWrite(
        7,
        whole.recorded_at,
        StoredView(replace(before, payload=None), StoredView(before).payload_bytes),
        StoredView(replace(after, payload=new), StoredView(after).payload_bytes),
    )

    assert recorded(lean) == recorded(whole)


@pytest.mark.slow
@given(lively, payloads, payloads)
@FIFTY
def test_texts_that_were_left_out_keep_their_sizes(task: Task, payload: str, result: str) -> None:
    whole = replace(task, payload=payload, result=result)
    lean = to_item(replace(task, payload=None, result=None))
    sizes = {"payload": len(payload.encode()), "result": len(result.encode())}

    def seen(view: TaskView) -> Any:
        return recorded(TaskWrite(7, 1, view, None))

    expected = seen(StoredView(whole))
    assert seen(ImageView({**lean, SIZES: sizes})) == expected
    assert seen(StoredView(replace(whole, payload=None), sizes["payload"])) == expected


def test_a_removal_by_anyone_but_the_table_is_a_delete() -> None:
    records: list[Any] = [
        {"dynamodb": {"SequenceNumber": "1", "ApproximateCreationDateTime": 1}, **identity}
        for identity in (
            {},
            {"userIdentity": None},
            {"userIdentity": "me"},
            {"userIdentity": {"principalId": "me"}},
            {"userIdentity": {"type": "Service", "principalId": "dynamodb.amazonaws.com"}},
        )
    ]

    writes, _ = writes_of(records)

    assert [write.forgotten for write in writes] == [False, False, False, False, True]


def test_what_is_no_record_of_the_stream_is_left_out_with_the_reason() -> None:
    good = {"dynamodb": {"SequenceNumber": "7", "ApproximateCreationDateTime": 1.5}}
    records: list[Any] = [good, None, {}, {"dynamodb": {"SequenceNumber": "x"}}]

    writes, unreadable = writes_of(records)

    assert writes == [TaskWrite(7, 1_500_000, None, None)]
    assert len(unreadable) == 3
    assert all(reason.startswith("not a record of the stream: ") for reason in unreadable)
    assert "KeyError: 'dynamodb'" in unreadable[1]
