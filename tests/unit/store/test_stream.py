"""What Lambda hands on of the stream is read as the same writes that the tasks would tell."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from headrace.domain.task import FINISHED, Place
from headrace.domain.write import TaskWrite
from headrace.store.stream import writes_of
from tests.unit.store.test_items import instants, names, tasks, texts

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
writes = st.builds(
    TaskWrite.of,
    st.just(7),
    sides,
    sides,
    at=instants.map(lambda at: at.replace(microsecond=0)),  # the stream tells it to the second
    forgotten=st.booleans(),
)


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
