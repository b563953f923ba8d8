"""`headrace sync` brings queues and schedules to what an app declares, and nothing else."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import httpx2 as httpx
import pytest

from headrace import App, Client, RetryStrategy
from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli, Ran

MARK = "headrace-app"
EARLY, LATE = ("early", "0 8 * * *"), ("late", "0 20 * * *")


def digest() -> None: ...


def shop(
    shards: int = 2, *schedules: tuple[str, str], name: str | None = "shop", **settings: Any
) -> App:
    """An app with a queue and schedules: names and their cron."""
    app = App(name=name)
    app.queue("mail", shards=shards, **settings)
    task = app.task(queue="mail", name="digest")(digest)
    for schedule, cron in schedules:
        app.periodic(cron=cron, name=schedule)(task)
    return app


def sync(service: MemoryService, app: App, *words: str, client: Client | None = None) -> Ran:
    """Run the command for *app*, as the variable `app` of a module `tasks`."""
    module = ModuleType("tasks")
    vars(module)["app"] = app
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "tasks", module)
        return Cli(service, client)("sync", "tasks:app", "--json", *words)


def plan(service: MemoryService, app: App, *words: str, client: Client | None = None) -> list[str]:
    ran = sync(service, app, "--dry-run", *words, client=client)
    return [subject(step) for step in ran.json["steps"]]


def subject(step: dict[str, Any]) -> str:
    return f"{step['action']} {step['schedule'] or 'queue'} of {step['queue']}"


def changes(ran: Ran, place: int = 0) -> dict[str, tuple[Any, Any]]:
    fields = ran.json["steps"][place]["fields"]
    return {change["field"]: (change["old"], change["new"]) for change in fields}


def outcomes(ran: Ran) -> list[str]:
    return [f"{step['outcome']} {subject(step)}" for step in ran.json["steps"]]


# ----------------------------------------------------------------------------------- differences


def test_missing_queues_and_schedules_are_created_once(service: MemoryService) -> None:
    app = shop(2, EARLY, retry_strategy={"kind": "fixed", "max_retries": 3})

    done = sync(service, app)

    assert outcomes(done) == ["done create queue of mail", "done create early of mail"]
    assert changes(done, 1) == {
        "cron": (None, "0 8 * * *"),
        "payload": (None, {"task": "digest", "args": {}}),
        "tags.headrace-app": (None, "shop"),
    }
    assert plan(service, app) == []
    assert service.client.get_queue("mail").shards == 2


def test_settings_that_the_app_does_not_name_stay_as_they_are(service: MemoryService) -> None:
    service.client.create_queue(
        "mail",
        description="by hand",
        retry_strategy={"max_retries": 9, "base_seconds": 3},
        dequeuing_settings={"max_inflight_tasks": 7, "rate_limiting": {"max_tokens": 5}},
    )
    service.client.pause_queue("mail", 600)

    ran = sync(service, shop(2, retry_strategy={"max_retries": 4}))

    assert changes(ran) == {"shards": (1, 2), "retry_strategy.max_retries": (9, 4)}
    after = service.client.get_queue("mail")
    assert (after.description, after.shards) == ("by hand", 2)
    assert after.retry_strategy == RetryStrategy(max_retries=4, base_seconds=3)
    assert after.dequeuing_settings.max_inflight_tasks == 7
    assert after.dequeuing_settings.dequeuing_paused


def test_a_schedule_is_changed_as_a_whole_and_a_pause_stays(service: MemoryService) -> None:
    sync(service, shop(2, EARLY))
    stored = service.client.get_schedule("mail", "early")
    service.client.put_schedule(
        "mail", "early", cron="0 8 * * *", tags={**stored.tags, "by": "hand"}, payload=1,
        expires_in_seconds=60, paused=True,
    )  # fmt: skip

    ran = sync(service, shop(2, ("early", "0 9 * * *")))

    assert changes(ran) == {
        "cron": ("0 8 * * *", "0 9 * * *"),
        "payload": (1, {"task": "digest", "args": {}}),
        "expires_in_seconds": (60, None),
        "tags.by": ("hand", None),
    }
    after = service.client.get_schedule("mail", "early")
    assert (after.cron, after.tags, after.paused) == ("0 9 * * *", {MARK: "shop"}, True)


# --------------------------------------------------------------------------------------- pruning


def test_prune_removes_only_schedules_that_the_app_no_longer_declares(
    service: MemoryService,
) -> None:
    sync(service, shop(2, EARLY, LATE))
    sync(service, shop(2, ("others", "0 1 * * *"), name="books"))
    service.client.put_schedule("mail", "by-hand", cron="0 2 * * *")
    app = shop(2, EARLY)

    kept = sync(service, app)
    pruned = sync(service, app, "--prune")

    assert kept.json["steps"] == []
    assert "late" in str(kept.json["undeclared"])
    assert outcomes(pruned) == ["done remove late of mail"]
    left = service.client.get_queue("mail").schedules or ()
    assert [one.name for one in left] == ["by-hand", "early", "others"]


def test_a_named_app_finds_its_schedules_in_queues_that_it_no_longer_declares(
    service: MemoryService,
) -> None:
    sync(service, shop(2, EARLY))
    moved = App(name="shop")
    moved.queue("letters")

    assert "remove early of mail" in plan(service, moved, "--prune")
    assert not any("queue of mail" in step for step in plan(service, moved, "--prune"))


def test_a_schedule_of_another_app_is_not_touched_and_an_unmarked_one_becomes_the_apps(
    service: MemoryService,
) -> None:
    sync(service, shop(2, EARLY, name="books"))
    payload = {"task": "digest", "args": {}}
    service.client.put_schedule("mail", "late", cron=LATE[1], payload=payload)

    ran = sync(service, shop(2, ("early", "0 9 * * *"), LATE), "--prune")

    assert ran.code == 5
    assert "schedule early of mail: it is of the app books" in ran.err
    assert changes(ran, 1) == {"tags.headrace-app": (None, "shop")}
    assert service.client.get_schedule("mail", "early").cron == EARLY[1]
    assert service.client.get_schedule("mail", "late").tags == {MARK: "shop"}


# --------------------------------------------------------------------------------------- failures


def test_after_a_refusal_other_changes_are_made_and_nothing_is_removed(
    service: MemoryService,
) -> None:
    sync(service, shop(2, EARLY, LATE))

    ran = sync(service, shop(3, ("early", "61 8 * * *"), ("noon", "0 12 * * *")), "--prune")

    assert outcomes(ran) == [
        "done change queue of mail",
        "failed change early of mail",
        "done create noon of mail",
        "skipped remove late of mail",
    ]
    assert "not tried: remove schedule late of mail; 2 of 4 changes done" in ran.err


def hooked(service: MemoryService, hook: Callable[[int, httpx.Request], None]) -> Client:
    """Return a client whose *hook* is called with the number of each call, before it is sent."""
    counted = iter(range(1000))

    def send(request: httpx.Request) -> httpx.Response:
        hook(next(counted), request)
        return service.transport.handle_request(request)

    transport = httpx.MockTransport(send)
    return Client(service.url, service.key, transport=transport, retries=0, sleep=lambda _: None)


OLD = shop(2, EARLY, ("gone", "0 3 * * *"), retry_strategy={"max_retries": 1})
NEW = shop(4, ("early", "0 9 * * *"), LATE, retry_strategy={"max_retries": 3})


def summary(service: MemoryService) -> tuple[int, int, dict[str, str | None]]:
    queue = service.client.get_queue("mail")
    schedules = {
        one.name: service.client.get_schedule("mail", one.name).cron
        for one in queue.schedules or ()
    }
    return queue.shards, queue.retry_strategy.max_retries, schedules


SYNCED = (4, 3, {"early": "0 9 * * *", "late": "0 20 * * *"})


def test_a_sync_that_failed_at_any_call_is_completed_by_the_next(
    service: MemoryService,
) -> None:
    for place in range(12):
        for queue in list(service.client.list_queues()):
            service.client.delete_queue(queue.name)
        service.tick()
        sync(service, OLD)

        def lose(number: int, request: httpx.Request, place: int = place) -> None:
            if number >= place:
                if number == place:  # only the answer is lost
                    service.transport.handle_request(request)
                raise httpx.ConnectError("away")

        cut = sync(service, NEW, "--prune", client=hooked(service, lose))
        assert cut.code in (0, 6)
        done = sum(one.startswith("done") for one in outcomes(cut)) if cut.out else 0
        assert cut.code == 0 or not cut.out or f"{done} of 4 changes done" in cut.err
        assert sync(service, NEW, "--prune").code == 0
        assert summary(service) == SYNCED


@pytest.mark.parametrize("what", ["queue", "schedule", "paused"])
def test_a_concurrent_change_is_never_overwritten(service: MemoryService, what: str) -> None:
    sync(service, OLD)
    operator, changed = service.client, list[str]()

    def change(_number: int, request: httpx.Request) -> None:
        if changed or request.method == "GET":
            return
        changed.append(what)
        early = operator.get_schedule("mail", "early")
        if what == "queue":
            operator.edit_queue("mail", shards=9)
        elif what == "schedule":
            operator.put_schedule("mail", "early", cron="0 7 * * *", tags={MARK: "shop"})
        else:
            operator.put_schedule(
                "mail",
                "early",
                cron=early.cron,
                payload=early.payload,
                tags=early.tags,
                paused=True,
            )

    ran = sync(service, NEW, "--prune", client=hooked(service, change))

    assert changed == [what]
    assert ran.code == (0 if what == "paused" else 5), ran.err
    assert ("another program has changed it; run it again" in ran.err) == (what != "paused")
    if what == "queue":
        assert operator.get_queue("mail").shards == 9
    elif what == "paused":
        early = operator.get_schedule("mail", "early")
        assert (early.cron, early.paused) == ("0 9 * * *", True)
