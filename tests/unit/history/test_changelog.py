"""The raw changes of the lake: what a line says, how a batch is named, what a secret becomes."""

import gzip
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.domain.task import Place, State, Task
from headrace.domain.write import TaskWrite
from headrace.history.changelog import Changelog, digest, line
from headrace.history.transitions import transition
from headrace.store.base import LakeObject

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


@pytest.mark.parametrize(
    ("move", "state"),
    [
        ("succeed", State.SUCCEEDED),
        ("fail", State.DEAD),
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


def test_payloads_are_kept_for_the_queues_that_a_pattern_names() -> None:
    log = Changelog(Kept(), ("ngsi.*", "orders"))

    assert [log.keeps_payload(queue) for queue in ("ngsi.a", "orders", "order")] == [
        True,
        True,
        False,
    ]
