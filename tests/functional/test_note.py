"""A task's note: set in every way, refused over its limit, kept by every transition, shown."""

import gzip
import json
from pathlib import Path

import pytest

from headrace.store.lake import FolderLake
from headrace.testing import MemoryService
from tests.functional.conftest import Service

NOTE = "for Ada: é"
LONG = "é" * 128 + "!"  # 257 bytes
LIMIT = "must be at most 256 bytes of UTF-8; it is 257"


@pytest.mark.parametrize("note", [None, "", NOTE, "é" * 128])
def test_a_note_is_shown_as_it_was_given(call: Service, note: str | None) -> None:
    [task] = call.put(call.queue(), 1, note=note)

    assert call.see(task)["note"] == note


def test_a_note_over_its_limit_is_refused_by_name(call: Service) -> None:
    mail = call.queue()
    call.put(mail, 1)
    [held] = call.take(mail)
    report = {"task_id": held["id"], "lease_id": held["lease"]["id"], "status": "SUCCEEDED"}
    child = {"queue": "mail", "note": LONG}
    refused = {
        "tasks[0].note": call("POST", f"{mail}/tasks", {"tasks": [{"note": LONG}]}),
        "reports[0].spawn[0].note": call(
            "POST", f"{mail}/reports", {"reports": [{**report, "spawn": [child]}]}
        ),
        "note": call("PUT", f"{mail}/schedules/s", {"every_seconds": 60, "note": LONG}),
        "on.ended.note": call("POST", "/v1/batches", {"id": "b", "on": {"ended": child}}),
    }

    for field, answer in refused.items():
        assert (answer.status, answer.fields) == (400, {field})
        assert LIMIT in answer.body


def test_spawned_tasks_ticks_and_callbacks_have_their_note(call: Service) -> None:
    mail = call.queue()
    call("PUT", f"{mail}/schedules/s", {"every_seconds": 3600, "note": "tick"})
    ended = {"queue": "mail", "payload": {}, "note": "called back"}
    call("POST", "/v1/batches", {"id": "b", "total": 0, "on": {"ended": ended}})
    called_back = call("GET", "/v1/batches/b").json["callbacks"]["ended"]["task_id"]
    run = call("POST", f"{mail}/schedules/s/run").json["results"][0]["id"]
    parent = next(task for task in call.take(mail, 9) if task["id"] == run)
    spawn = [{"queue": "mail", "note": "child"}]
    [child] = call.say(parent, "SUCCEEDED", spawn=spawn)["spawned"]

    assert call("GET", f"{mail}/schedules/s").json["note"] == parent["note"] == "tick"
    assert call.see(called_back)["note"] == "called back"
    assert call.see(child["id"])["note"] == "child"


def test_a_note_stays_through_retries_moves_and_restarts(call: Service) -> None:
    mail, other = call.queue(), call.queue("other")
    [task] = call.put(mail, 1, note=NOTE, retry_strategy={"kind": "fixed", "base_seconds": 0})

    call.say(call.take(mail)[0], "FAILED")
    call.say(call.take(mail)[0], "RELEASED")
    call.say(call.take(mail)[0], "MOVED", to_queue="other")
    call.say(call.take(other)[0], "FAILED", retryable=False)
    assert call("POST", f"{other}/tasks/restart", {"ids": [task]}).status == 200
    assert call("POST", f"{other}/tasks/move", {"ids": [task], "to_queue": "mail"}).status == 200
    [again] = call.take(mail)

    assert (again["id"], again["note"]) == (task, NOTE)
    call.say(again, "SUCCEEDED")
    assert call.see(task)["note"] == NOTE


def test_a_duplicate_does_not_overwrite_a_note(call: Service) -> None:
    mail = call.queue()
    [task] = call.put(mail, 1, note=NOTE, dedupe_key="k")

    call.put(mail, 2, note="other", dedupe_key="k", overwrite_on_duplicate=["payload"])
    named = {"dedupe_key": "k", "overwrite_on_duplicate": ["note"]}

    assert call.see(task)["note"] == NOTE
    assert call("POST", f"{mail}/tasks", {"tasks": [named]}).status == 400


def test_the_lake_keeps_a_note_for_replays(tmp_path: Path) -> None:
    with MemoryService(lake=FolderLake(tmp_path)) as service:
        service.client.create_queue("mail")
        service.client.enqueue("mail", note=NOTE)
        service.tick()

    [file] = tmp_path.rglob("*.json.gz")
    assert json.loads(gzip.decompress(file.read_bytes()))["note"] == NOTE
