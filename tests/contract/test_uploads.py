"""Payloads that producers upload themselves: one reference makes one task, and is lost by none."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from msgspec import structs

from headrace.domain import limits
from headrace.domain.errors import InvalidRequest
from headrace.domain.offload import PATH, Upload
from headrace.domain.plan import TaskSpec
from headrace.domain.push import Target
from headrace.ops.shared.jobs import ORPHAN_AGE, ROUND
from headrace.ops.tasks.enqueue import EnqueueOutcome, EnqueueResult
from headrace.store.base import Store
from tests.contract.conftest import World
from tests.contract.test_offload import OffloadWorld, offload_world
from tests.manual_clock import ManualClock

CONTENT = b"\x00\xff no JSON, and of any size" * 200


@pytest.fixture
def world(store: Store, clock: ManualClock) -> OffloadWorld:
    return offload_world(store, clock)


def granted(world: World, queue: str = "mail", **given: Any) -> Upload:
    given = {"task_id": None, "origin": "http://here", **given}
    digest = sha256(CONTENT).hexdigest()
    return world.use.uploads.grant(queue, size=len(CONTENT), digest=digest, **given).upload


def uploaded(world: OffloadWorld, queue: str = "mail", **given: Any) -> Upload:
    upload = granted(world, queue, **given)
    world.objects.put({upload.name: CONTENT})
    return upload


def spec(upload: Upload, **others: Any) -> TaskSpec:
    return structs.replace(TaskSpec("null", id=upload.task_id, upload=upload), **others)


def enqueue(world: World, *new: TaskSpec, queue: str = "mail") -> Sequence[EnqueueResult]:
    results = world.use.tasks.enqueue(queue, new)
    world.clock.forward(0.001)
    return results


def invalid(world: World, new: TaskSpec, queue: str = "mail") -> str:
    (result,) = enqueue(world, new, queue=queue)
    assert result.outcome is EnqueueOutcome.INVALID
    return result.detail or ""


def test_a_task_is_made_of_an_upload_and_delivered_without_reading_it(world: OffloadWorld) -> None:
    upload = uploaded(world)
    (made,) = enqueue(world, spec(upload))
    task = world.one("mail")

    assert (made.outcome, made.id) == (EnqueueOutcome.CREATED, upload.task_id)
    assert (task.id, task.payload) == (upload.task_id, None)
    assert task.uploaded == upload.text
    assert world.objects.asked == [("put", 1)]
    assert world.use.texts.shown(task).payload is None
    assert world.use.uploads.url_of(upload.text, "http://here").startswith("http://here/v1/")


@pytest.mark.gate
def test_one_reference_makes_one_task_however_often_it_comes(world: OffloadWorld) -> None:
    upload = uploaded(world)
    results = [*enqueue(world, spec(upload)), *enqueue(world, spec(upload))]
    again = enqueue(world, spec(upload), spec(upload))

    assert [one.outcome for one in (*results, *again)] == [
        EnqueueOutcome.CREATED,
        *[EnqueueOutcome.EXISTING] * 3,
    ]
    assert world.use.inspect.count("mail").count == 1


@pytest.mark.parametrize("how", ["missing", "size", "late", "queue"])
def test_what_is_not_as_it_was_granted_is_invalid(world: OffloadWorld, how: str) -> None:
    world.queue("post")
    upload = granted(world) if how == "missing" else uploaded(world)
    if how == "size":
        world.objects.put({upload.name: b"short"})
    if how == "late":
        world.clock.forward(limits.UPLOAD_SECONDS)
    said = invalid(world, spec(upload), "post" if how == "queue" else "mail")

    assert (
        said
        == {
            "missing": "payload_ref was not uploaded, or is used up",
            "size": f"payload_ref has 5 bytes, and not the {len(CONTENT)} that were granted",
            "late": "payload_ref is over: it was good for 3600 s. Upload it again",
            "queue": "payload_ref is for another queue",
        }[how]
    )
    assert world.use.inspect.count("mail").count == 0


def test_a_task_keeps_its_upload_through_retries_moves_and_restarts(world: OffloadWorld) -> None:
    world.queue("post")
    upload = uploaded(world)
    enqueue(world, spec(upload))
    world.say(world.one("mail"), "MOVED", to_queue="post")
    world.say(world.one("post"), "RELEASED")
    world.record()
    world.clock.forward((ORPHAN_AGE + ROUND).total_seconds())
    world.use.reaping.run()

    assert world.one("post").uploaded == upload.text
    assert world.objects.names() == [upload.name]


def test_a_late_recorder_keeps_the_upload_of_a_recreated_task(world: OffloadWorld) -> None:
    upload = uploaded(world)
    enqueue(world, spec(upload))
    world.use.tasks.delete(upload.task_id)
    enqueue(world, spec(upload))
    world.record()
    world.use.reaping.run()
    assert world.one("mail").uploaded == upload.text
    assert world.objects.names() == [upload.name], "a task has lost its payload"


def test_a_report_spawns_a_task_of_an_upload_or_says_what_is_wrong(world: OffloadWorld) -> None:
    world.queue("post")
    world.put("mail", "1")
    parent = world.one("mail")
    missing = granted(world, "post")
    refused = world.say(parent, "SUCCEEDED", spawn=(("post", spec(missing)),))
    assert refused.outcome == "INVALID"
    assert "spawn[0].payload_ref was not uploaded" in (refused.detail or "")
    upload = uploaded(world, "post")
    for _ in range(2):
        world.say(parent, "SUCCEEDED", spawn=(("post", spec(upload)),))

    assert [task.uploaded for task in world.take("post", 5)] == [upload.text]


def test_a_queue_that_pushes_takes_none(world: OffloadWorld) -> None:
    target = Target(url="https://example.com/hook")
    before = uploaded(world, "mail")
    queue = world.use.queues.get("mail")
    world.use.queues.replace("mail", replace(queue.settings, target=target))
    world.clock.forward(60)

    with pytest.raises(InvalidRequest, match="queue mail pushes payloads to a target"):
        granted(world)
    assert "payload_ref has no meaning here" in invalid(world, spec(before))


def test_a_url_of_an_upload_is_good_for_its_method_and_its_time(world: OffloadWorld) -> None:
    upload = granted(world)
    url = world.use.uploads.grant(
        "mail", size=1, digest=sha256(b"x").hexdigest(), task_id="t", origin="http://here"
    ).url
    name, query = unquote(urlsplit(url).path).split(PATH, 1)[1], parse_qs(urlsplit(url).query)
    own = world.use.uploads.own

    allowed = own("PUT", name, query)
    assert allowed is not None
    assert allowed.task_id == "t"
    assert own("GET", name, query) is None
    assert own("PUT", upload.name, query) is None
    assert own("PUT", name, {**query, "until": ["soon"]}) is None
    world.clock.forward(limits.UPLOAD_SECONDS)
    assert own("PUT", name, query) is None


def test_memory_has_no_file_to_upload_to(world: OffloadWorld) -> None:
    with pytest.raises(InvalidRequest, match="here is only memory"):
        granted(world, origin=None)
