"""The raw changes of the lake: what a line says, how a batch is named, what a secret becomes."""

import gzip
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.domain.retry import RetryStrategy
from headrace.domain.task import ErrorKind, Place, Priority, State, Task, TaskError
from headrace.domain.write import StoredView, TaskWrite
from headrace.history.changelog import FORGET, Changelog, digest, line, packed, raw_name
from headrace.history.transitions import UnreadableImage, transition
from headrace.store.base import LakeObject
from headrace.store.items import to_item
from headrace.store.stream import ImageView

NOW = datetime(2026, 11, 21, 13, 5, tzinfo=UTC)
AT = 1_795_266_300_000_000
SECRET = "lse_secret"


def a_task(state: State = State.ENQUEUED, **fields: Any) -> Task:
    given = {"last_move": "enqueue", "payload": '{"é":1}', "version": 3, **fields}
    return Task("t1", Place("mail", state, 0), NOW, NOW, NOW, NOW, **given)


def in_flight(**fields: Any) -> Task:
    leased = {"lease_id": SECRET, "lease_expires_at": NOW + timedelta(seconds=30)}
    given = {**leased, "started_at": NOW, "worker": "w1", "last_move": "dequeue", "attempts": 1}
    return a_task(State.INFLIGHT, **{**given, **fields})


def reported(
    before: Task | None,
    after: Task | None,
    *,
    sequence: int = 7,
    forgotten: bool = False,
    payload: bool = False,
) -> dict[str, Any]:
    write = TaskWrite.of(sequence, before, after, at=NOW, forgotten=forgotten)
    return line(write, transition(write), shard="s", payload=payload)


def test_a_new_task_is_told_by_where_it_came_to() -> None:
    assert reported(None, a_task(version=1)) == {
        "format": 1,
        "shard": "s",
        "sequence": "7",
        "recorded_at": AT,
        "at": AT,
        "task_id": "t1",
        "created_at": AT,
        "version": 1,
        "move": "enqueue",
        "queue_to": "mail",
        "state_to": "ENQUEUED",
        "due_to": AT,
        "enqueued_to": AT,
        "attempts_to": 0,
        "hop_to": 0,
        "payload_bytes": 8,
    }


def test_a_delivery_tells_its_worker_and_keeps_its_lease_secret() -> None:
    line = reported(a_task(), in_flight())

    assert (line["worker"], line["started_at"]) == ("w1", AT)
    assert line["lease_to"] == digest(SECRET)
    assert line["lease_end_to"] == AT + 30_000_000
    assert SECRET not in json.dumps(line)


def test_a_report_tells_whose_it_was() -> None:
    after = a_task(last_move="succeed", settled_lease_id=SECRET)
    line = reported(in_flight(), after)

    assert line["settled"] == line["lease_from"] == digest(SECRET)


def test_a_report_by_a_groups_name_is_its_deliverys() -> None:
    group = "lsg_" + "0" * 20 + "_" + "0" * 16
    before = in_flight(lease_id=f"{group}:token")
    line = reported(before, a_task(last_move="move", settled_lease_id=group))

    assert line["settled"] == line["lease_from"] == digest(f"{group}:token")


def test_a_failure_tells_its_error_cut_to_a_kilobyte() -> None:
    error = TaskError(1, NOW, "w1", ErrorKind.FAILED, "Timeout", "x" * 2000, "trace")
    line = reported(in_flight(), a_task(last_move="fail", errors=(error,)))

    assert (line["error_kind"], line["error_type"]) == ("failed", "Timeout")
    assert line["error_message"] == "x" * 1024
    assert "trace" not in json.dumps(line)


@pytest.mark.parametrize(
    ("move", "state"),
    [
        ("succeed", State.SUCCEEDED),
        ("fail", State.DEAD),
        ("reclaim", State.DEAD),
        ("release", State.DEAD),
        ("expire", State.DEAD),
    ],
)
def test_how_a_task_went_that_is_not_kept_is_the_move_that_ended_it(
    move: str, state: State
) -> None:
    left = a_task(
        state,
        version=4,
        last_move=move,
        finished_at=NOW,
        spent=Place("mail", state, 0),
        payload=None,
    )
    line = reported(in_flight(), left)

    assert (line["move"], line["version"], line["at"]) == (move, 4, AT)
    assert (line["queue_from"], line["state_from"]) == ("mail", "INFLIGHT")
    assert not {"queue_to", "state_to"} & line.keys()
    assert line["payload_bytes"] == len('{"é":1}'.encode())


def test_a_removal_of_which_nothing_is_left_is_a_delete() -> None:
    line = reported(in_flight(), None)

    assert (line["move"], line["version"]) == ("delete", 4)
    assert "state_to" not in line


def test_what_the_table_forgets_by_itself_is_told_from_a_delete() -> None:
    done = a_task(State.SUCCEEDED, finished_at=NOW)

    assert reported(done, None, forgotten=True)["move"] == FORGET


def test_a_payload_is_kept_where_it_is_new() -> None:
    first, second = a_task(), a_task(State.ENQUEUED, payload="2", last_move="overwrite")

    assert reported(None, first, payload=True)["payload"] == '{"é":1}'
    assert "payload" not in reported(first, in_flight(), payload=True)
    assert reported(first, second, payload=True)["payload"] == "2"
    assert "payload" not in reported(None, first)


def test_what_a_replay_needs_besides_is_kept_with_payloads_where_it_may_be_new() -> None:
    retry = RetryStrategy(max_retries=1)
    settings: dict[str, Any] = {"group_key": "g", "priority": Priority.HIGH, "retry": retry}
    settings["keepalive"] = 5
    bare, given = a_task(), a_task(tags={"tenant": "é"}, **settings)
    moved = a_task(last_move="move", tags={"tenant": "x"})
    names = {"tags", "group_key", "priority", "retry_strategy", "keepalive_timeout_in_seconds"}

    line = reported(None, given, payload=True)
    assert (line["tags"], line["group_key"], line["priority"]) == ({"tenant": "é"}, "g", "high")
    assert json.loads(line["retry_strategy"])["max_retries"] == 1
    assert line["keepalive_timeout_in_seconds"] == 5
    assert packed([line])
    assert {name: reported(None, bare, payload=True).get(name) for name in names} == {
        **dict.fromkeys(names),
        "tags": {},  # known, and none
    }
    assert reported(in_flight(), moved, payload=True)["tags"] == {"tenant": "x"}
    assert not names & reported(given, in_flight(), payload=True).keys()
    assert not names & reported(None, given).keys()


def test_texts_that_were_left_out_of_an_image_still_have_a_size() -> None:
    image = {**to_item(a_task(payload=None)), "_sizes": {"payload": 70_000, "result": None}}
    write = TaskWrite(1, AT, None, ImageView(image))
    entry = line(write, transition(write), shard="s", payload=False)

    assert entry["payload_bytes"] == 70_000
    assert "result_bytes" not in entry


def test_a_payload_that_was_left_out_of_a_task_still_has_its_size() -> None:
    write = TaskWrite(1, AT, StoredView(a_task(payload=None), 70_000), None)

    assert line(write, transition(write), shard="s", payload=True)["payload_bytes"] == 70_000


def test_an_image_without_a_version_is_unreadable() -> None:
    image = to_item(a_task())
    del image["version"]
    write = TaskWrite(7, AT, None, ImageView(image))
    change = transition(write)

    with pytest.raises(UnreadableImage, match=r"7: .*version"):
        line(write, change, shard="s", payload=False)


class Kept:
    """A lake that is a dictionary."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def put(self, name: str, content: bytes) -> None:
        self.files[name] = content

    def get(self, name: str, within: range | None = None) -> bytes | None:
        return self.files.get(name)

    def list(self, prefix: str) -> list[LakeObject]:
        return [LakeObject(name, 0, "") for name in self.files if name.startswith(prefix)]


def test_a_batch_is_named_by_its_first_change_so_that_a_repeat_overwrites_itself() -> None:
    lake = Kept()
    lines = [reported(None, a_task(), sequence=number) for number in (7, 8, 9)]

    Changelog(lake).write(lines)
    Changelog(lake).write(lines)
    Changelog(lake).write(lines[:1])
    Changelog(lake).write([])

    day = "raw/dt=2026-11-21/hh=13"
    assert sorted(lake.files) == [f"{day}/s-7-7.json.gz", f"{day}/s-7-9.json.gz"]
    text = gzip.decompress(lake.files[f"{day}/s-7-9.json.gz"]).decode()
    assert [json.loads(each) for each in text.splitlines()] == lines


def test_a_batch_across_the_hour_becomes_two_files() -> None:
    lake = Kept()
    lines = [
        {**reported(None, a_task(), sequence=number), "recorded_at": AT + number * 20 * 60_000_000}
        for number in range(4)
    ]

    Changelog(lake).write(lines)

    day = "raw/dt=2026-11-21"
    assert list(lake.files) == [f"{day}/hh=13/s-0-2.json.gz", f"{day}/hh=14/s-3-3.json.gz"]


def test_the_same_lines_are_the_same_bytes() -> None:
    lines = [reported(None, a_task())]

    assert packed(lines) == packed(lines)


def test_a_shard_that_is_no_file_name_becomes_one() -> None:
    lines = [{**reported(None, a_task()), "shard": "arn:aws:dynamodb/table/x"}]

    assert raw_name(lines).endswith("/arn_aws_dynamodb_table_x-7-7.json.gz")


def test_payloads_are_kept_for_the_queues_that_a_pattern_names() -> None:
    log = Changelog(Kept(), ("ngsi.*", "orders"))

    assert [log.keeps_payload(queue) for queue in ("ngsi.a", "orders", "order")] == [
        True,
        True,
        False,
    ]
