"""Batches over HTTP: what is answered, what is refused and how, and who may."""

import pytest

from headrace.domain.access import Role
from tests.documented import check_documented
from tests.functional.conftest import Counted, Service
from tests.functional.roles import keyed

ON = {"ended": {"queue": "told", "payload": {"big": 12345678901234567890}, "tags": {"a": "b"}}}


@pytest.fixture
def counted(counted: Counted) -> Counted:
    """Give a service with two queues."""
    counted.queue("work")
    counted.queue("told")
    return counted


def test_a_batch_is_created_filled_closed_and_calls_back(counted: Counted) -> None:
    made = counted("POST", "/v1/batches", {"id": "night", "on": ON})
    assert made.status == 201, made.body
    assert counted("POST", "/v1/batches", {"id": "night", "on": ON}).status == 200
    ids = counted.put("/v1/queues/work", 1, 2, batches=["night"])
    assert counted.see(ids[0])["batches"] == ["night"]

    closed = counted("POST", "/v1/batches/night/close", {"total": 2})
    for task in counted.take("/v1/queues/work", 2):
        counted.say(task, "SUCCEEDED", result={"was": task["payload"]})
    counted.record()

    assert (closed.status, closed.json["total"]) == (200, 2)
    shown = counted("GET", "/v1/batches/night").json
    check_documented("Batch", shown)
    assert (shown["created"], shown["live"], shown["succeeded"]) == (2, 0, 2)
    (told,) = counted.take("/v1/queues/told")
    assert told["id"] == shown["callbacks"]["ended"]["task_id"]
    assert told["payload"] == {"big": 12345678901234567890}
    assert (told["tags"], told["batches"]) == ({"a": "b"}, [])
    assert told["batch"] == {"id": "night", "total": 2, "succeeded": 2, "dead": 0, "deleted": 0}
    results = counted("GET", "/v1/batches/night/results").json
    check_documented("BatchResults", results)
    assert [one["result"] for one in results["results"]] == [{"was": 1}, {"was": 2}]
    page = counted("GET", "/v1/batches").json
    assert ([batch["id"] for batch in page["batches"]], page["cursor"]) == (["night"], None)


def test_a_key_sees_batches_whose_queues_are_all_its_own(counted: Counted) -> None:
    counted("POST", "/v1/batches", {"id": "b", "on": ON})
    counted("POST", "/v1/batches", {"id": "mine"})
    worker = keyed(counted, Role.WORKER, "work")

    assert worker("GET", "/v1/batches").json["batches"] == []  # whose members they will be?
    counted.put("/v1/queues/work", 1, batches=["mine"])
    for task in counted.take("/v1/queues/work"):
        counted.say(task, "SUCCEEDED")
    counted.record()
    assert [batch["id"] for batch in worker("GET", "/v1/batches").json["batches"]] == ["mine"]
    for there in ("b", "none"):
        assert worker("GET", f"/v1/batches/{there}").status == 403
        assert worker("POST", f"/v1/batches/{there}/close", {"total": 1}).status == 403
    assert worker("POST", "/v1/batches", {"on": ON}).status == 403
    other = worker("POST", "/v1/batches", {"id": "b"})
    assert (other.status, other.json["code"]) == (409, "batch_exists")
    answer = worker("POST", "/v1/queues/work/tasks", {"tasks": [{"batches": ["b"]}]})
    assert answer.json["results"][0]["detail"] == "batches[0]: there is no batch b"


def test_a_batch_is_its_makers_until_its_members_are_seen(counted: Counted) -> None:
    counted.queue("other")
    maker, another = (keyed(counted, Role.PRODUCER, queue) for queue in ("work", "o*"))
    assert maker("POST", "/v1/batches", {"id": "b", "total": 9}).status == 201
    assert maker("POST", "/v1/batches", {"id": "b", "total": 9}).status == 200

    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/steps"), ("POST", "/cancel")):
        assert another(method, f"/v1/batches/b{path}").status == 403
    answer = another("POST", "/v1/queues/other/tasks", {"tasks": [{"batches": ["b"]}]})
    assert answer.json["results"][0]["detail"] == "batches[0]: there is no batch b"
    assert another("GET", "/v1/batches").json["batches"] == []
    assert maker("GET", "/v1/batches/b").json["total"] == 9
    assert counted("GET", "/v1/batches/b").status == 200

    maker.put("/v1/queues/work", 1, batches=["b"])
    counted.clock.forward(90)
    counted.record()
    assert another("GET", "/v1/batches/b").status == 403
    assert maker("DELETE", "/v1/batches/b").status == 204


def test_a_key_does_not_see_the_result_of_a_member_that_moved_to_another_queue(
    counted: Counted,
) -> None:
    counted.queue("secret")
    counted("POST", "/v1/batches", {"id": "b", "total": 2})
    stays, moves = counted.put("/v1/queues/work", 1, 2, batches=["b"])
    for task in counted.take("/v1/queues/work", 2):
        fate = {"to_queue": "secret"} if task["id"] == moves else {"result": "open"}
        counted.say(task, "MOVED" if task["id"] == moves else "SUCCEEDED", **fate)
    (moved,) = counted.take("/v1/queues/secret")
    counted.say(moved, "SUCCEEDED", result="closed")
    counted.record()

    worker = keyed(counted, Role.WORKER, "work")
    seen = worker("GET", "/v1/batches/b/results").json
    everything = counted("GET", "/v1/batches/b/results").json["results"]

    assert [(one["id"], one["result"]) for one in seen["results"]] == [(stays, "open")]
    assert not seen["truncated"]
    assert {one["result"] for one in everything} == {"open", "closed"}


def test_a_workflow_shows_its_steps_and_is_one_row_in_lists(counted: Counted) -> None:
    counted("POST", "/v1/batches", {"id": "wfl", "total": 3})
    step = {"queue": "told", "batches": ["wfl"], "tags": {"step": "sum"}}
    counted("POST", "/v1/batches", {"id": "wfl-sum", "total": 2, "on": {"succeeded": step}})
    counted("POST", "/v1/batches", {"id": "wfl-2026", "total": 2})
    for number in range(2):
        counted.put("/v1/queues/work", number, id=f"wfl-{number}", batches=["wfl", "wfl-sum"])

    before = counted("GET", "/v1/batches/wfl/steps").json
    for task in counted.take("/v1/queues/work", 2):
        counted.say(task, "SUCCEEDED")
    counted.record()
    after = counted("GET", "/v1/batches/wfl/steps").json

    check_documented("BatchSteps", before)
    *_, waits = before["steps"]
    assert [one["status"] for one in before["steps"]] == ["READY", "READY", None]
    assert (waits["made"], waits["after"]) == (False, ["wfl-0", "wfl-1"])
    assert (waits["part"], waits["part_total"], waits["part_ended"]) == ("wfl-sum", 2, 0)
    assert [one["status"] for one in after["steps"]] == ["SUCCEEDED", "SUCCEEDED", "READY"]
    assert (after["steps"][2]["made"], after["steps"][2]["part_ended"]) == (True, 2)
    assert after["left_out"] == 0

    def listed(**query: str) -> list[tuple[str, str | None]]:
        page = counted("GET", "/v1/batches", query=query).json
        return [(one["id"], one["part_of"]) for one in page["batches"]]

    every = [("wfl", None), ("wfl-2026", None), ("wfl-sum", "wfl")]
    assert listed() == every
    assert listed(parts="false") == every[:2]
    assert listed(parts="false", prefix="wfl-") == every[1:]


def test_steps_of_other_queues_are_not_shown(counted: Counted) -> None:
    counted("POST", "/v1/batches", {"id": "wfl", "total": 2})
    step = {"queue": "told", "batches": ["wfl"]}
    counted("POST", "/v1/batches", {"id": "wfl-sum", "total": 1, "on": {"succeeded": step}})
    counted.put("/v1/queues/work", 1, id="wfl-0", batches=["wfl", "wfl-sum"])
    for task in counted.take("/v1/queues/work"):
        counted.say(task, "FAILED", retryable=False)
    counted.record()
    key = keyed(counted, Role.VIEWER, "work")

    steps = key("GET", "/v1/batches/wfl/steps").json["steps"]

    assert [(one["task_id"], one["part"]) for one in steps] == [("wfl-0", None)]


def _cancelled(service: Service, id: str) -> tuple[int, int]:
    """Cancel a batch, step by step; return how many tasks were, and in how many steps."""
    number, steps, cursor = 0, 0, None
    while True:
        answer = service("POST", f"/v1/batches/{id}/cancel", {"cursor": cursor})
        assert answer.status == 200, answer.body
        check_documented("CancelledBatch", answer.json)
        number, steps, cursor = number + answer.json["cancelled"], steps + 1, answer.json["cursor"]
        if cursor is None:
            return number, steps


def test_a_batch_is_cancelled_with_all_its_members_and_ends(counted: Counted) -> None:
    counted("POST", "/v1/batches", {"id": "night", "on": ON})
    ids = counted.put("/v1/queues/work", *range(12), batches=["night"])
    counted("POST", "/v1/batches/night/close", {"total": 12})
    [running] = counted.take("/v1/queues/work")
    others = counted.put("/v1/queues/work", 1, 2)
    counted.use.batch_cancelling.patience = -1

    cancelled, steps = _cancelled(counted, "night")
    counted.record()

    assert cancelled == 12
    assert steps > 10  # each step looks at one task
    assert {counted.see(id_)["dead_reason"] for id_ in ids} == {"cancelled"}
    assert {counted.see(id_)["state"] for id_ in others} == {"ENQUEUED"}
    assert running["id"] in ids
    shown = counted("GET", "/v1/batches/night").json
    assert (shown["dead"], shown["live"], shown["total"]) == (12, 0, 12)
    assert shown["finished_at"] is not None
    (told,) = counted.take("/v1/queues/told")
    assert told["batch"]["dead"] == 12
    assert _cancelled(counted, "night")[0] == 0


def _workflow(counted: Counted, steps: int) -> None:
    """Make a chain of steps, the first of which waits."""
    counted("POST", "/v1/batches", {"id": "wfl", "total": steps, "on": ON})
    inner = ["wfl"]
    for number in range(steps - 1, 0, -1):
        step = {"queue": "told", "batches": inner, "tags": {"step": str(number)}}
        part = {"id": f"wfl-{number}", "total": 1, "on": {"succeeded": step}}
        assert counted("POST", "/v1/batches", part).status == 201
        inner = ["wfl", f"wfl-{number}"]
    counted.put("/v1/queues/work", 1, id="wfl-0", batches=inner)


def test_a_workflow_is_cancelled_wherever_it_is_and_however_often_it_is_begun(
    counted: Counted,
) -> None:
    _workflow(counted, 4)
    for task in counted.take("/v1/queues/work"):
        counted.say(task, "SUCCEEDED")
    counted.record()  # the second is made and waits
    counted.use.batch_cancelling.patience = -1

    begun = [counted("POST", "/v1/batches/wfl/cancel").json["cancelled"] for _ in range(3)]
    cancelled, _ = _cancelled(counted, "wfl")
    counted.record()

    assert sum(begun) + cancelled == 1
    steps = counted("GET", "/v1/batches/wfl/steps").json["steps"]
    assert [one["made"] for one in steps] == [True, True, False, False]
    assert [one["stopped"] for one in steps] == [False, False, True, True]
    shown = counted("GET", "/v1/batches/wfl").json
    assert (shown["total"], shown["succeeded"], shown["dead"]) == (2, 1, 1)
    assert shown["finished_at"] is not None


def test_a_producer_cancels_in_its_queues_and_nowhere_else(counted: Counted) -> None:
    producer = keyed(counted, Role.PRODUCER, "work")
    producer("POST", "/v1/batches", {"id": "mine"})
    counted("POST", "/v1/batches", {"id": "wfl", "total": 2})
    step = {"queue": "told", "batches": ["wfl"]}
    counted("POST", "/v1/batches", {"id": "wfl-sum", "total": 1, "on": {"succeeded": step}})
    for batch in ("mine", "wfl"):
        counted.put("/v1/queues/work", 1, batches=[batch])

    assert _cancelled(producer, "mine")[0] == 1
    assert producer("POST", "/v1/batches/wfl/cancel").status == 403
    assert keyed(counted, Role.VIEWER, "work")("POST", "/v1/batches/mine/cancel").status == 403
    assert counted("POST", "/v1/batches/none/cancel").status == 404
    assert counted("POST", "/v1/batches/mine/cancel", {"cursor": "forged"}).status == 400
