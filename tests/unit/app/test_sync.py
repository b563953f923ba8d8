"""Queues and schedules are brought to what an app declares, and nothing else is touched.

Long, because each difference between an app and the service is a test of its own.
"""

from collections.abc import Callable, Iterator
from typing import Any

import httpx2 as httpx
import pytest

from headrace import App, Client, RetryStrategy
from headrace.client.app.drift import MARK, SyncAction, SyncPlan, SyncStep
from headrace.client.app.syncing import AppSync, StepOutcome, StepResult, failure_of
from headrace.domain.errors import (
    Conflict,
    Forbidden,
    HeadraceError,
    InvalidRequest,
    QueueExists,
    Unavailable,
    VersionMismatch,
)
from headrace.testing import MemoryService
from headrace.wire.queues import Queue, Schedule
from tests.unit.app.app_doubles import problem


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


EARLY, LATE = ("early", "0 8 * * *"), ("late", "0 20 * * *")


@pytest.fixture
def service() -> Iterator[MemoryService]:
    with MemoryService() as service:
        yield service


def sync_of(app: App, client: Client) -> AppSync:
    return AppSync(client, app.declares("tasks:app"), everywhere=app.name is not None)


def synced(app: App, client: Client, *, prune: bool = False) -> list[StepResult]:
    sync = sync_of(app, client)
    return list(sync.apply(sync.plan(prune=prune).steps))


def plan_of(app: App, client: Client, *, prune: bool = False) -> SyncPlan:
    return sync_of(app, client).plan(prune=prune)


def steps_of(plan: SyncPlan) -> list[str]:
    return [f"{step.action} {step.subject}" for step in plan.steps]


def changes(step: SyncStep) -> dict[str, tuple[Any, Any]]:
    return {change.field: (change.old, change.new) for change in step.fields}


def outcomes(results: list[StepResult]) -> list[str]:
    return [f"{one.outcome} {one.step.action} {one.step.subject}" for one in results]


def failure(results: list[StepResult]) -> HeadraceError:
    error = failure_of(results)
    assert error is not None
    return error


# ------------------------------------------------------------------------------------- what differs


def test_what_is_missing_is_created_and_then_nothing_is_left_to_do(service: MemoryService) -> None:
    app = shop(2, EARLY)

    plan = plan_of(app, service.client)
    done = synced(app, service.client)

    assert steps_of(plan) == ["create queue mail", "create schedule early of mail"]
    assert changes(plan.steps[0]) == {"shards": (None, 2)}
    assert changes(plan.steps[1]) == {
        "cron": (None, "0 8 * * *"),
        "payload": (None, {"task": "digest", "args": {}}),
        "tags.headrace-app": (None, "shop"),
    }
    assert {one.outcome for one in done} == {StepOutcome.DONE}
    assert plan_of(app, service.client) == SyncPlan((), ("queue mail", "schedule early of mail"))
    assert service.client.get_queue("mail").shards == 2


def test_a_name_in_the_place_of_the_client_is_refused_with_what_to_write() -> None:
    name: Any = "shop"
    with pytest.raises(TypeError, match=r"its name is App\(name='shop'\)"):
        App(name)


def test_queues_that_are_told_something_are_made_before_those_that_tell(
    service: MemoryService,
) -> None:
    app = App(name="shop")
    app.queue("a", on_end={"queue": "b"})
    app.queue("b", on_end={"queue": "d"}, alerts={"queue": "c", "dead_per_minute": 1})
    app.queue("c", alerts={"queue": "d", "oldest_ready_seconds": 60})
    app.queue("d")

    assert {one.outcome for one in synced(app, service.client)} == {StepOutcome.DONE}
    assert plan_of(app, service.client).steps == ()


def test_settings_that_the_app_does_not_name_stay_as_they_are(service: MemoryService) -> None:
    service.client.create_queue(
        "mail",
        description="by hand",
        retry_strategy={"max_retries": 9, "base_seconds": 3},
        dequeuing_settings={"max_inflight_tasks": 7, "rate_limiting": {"max_tokens": 5}},
    )
    service.client.pause_queue("mail", 600)

    app = shop(2, retry_strategy={"max_retries": 4})
    (step,) = plan_of(app, service.client).steps
    synced(app, service.client)

    assert changes(step) == {"shards": (1, 2), "retry_strategy.max_retries": (9, 4)}
    after = service.client.get_queue("mail")
    assert (after.description, after.shards) == ("by hand", 2)
    assert after.retry_strategy == RetryStrategy(max_retries=4, base_seconds=3)
    assert after.dequeuing_settings.max_inflight_tasks == 7
    assert after.dequeuing_settings.dequeuing_paused
    service.forward(601)
    assert not service.client.get_queue("mail").dequeuing_settings.dequeuing_paused


@pytest.mark.parametrize(
    ("stored", "declared"),
    [
        ({"max_retries": 9}, {"intervals": [1, 60]}),
        ({"kind": "intervals", "intervals": [1, 60]}, {"kind": "linear", "max_retries": 3}),
        ({"kind": "intervals", "intervals": [1, 60]}, {"intervals": [1, 2, 3]}),
        ({"max_retries": 9}, RetryStrategy(max_retries=3, jitter=0)),
    ],
)
def test_every_kind_of_backoff_can_follow_every_other(
    service: MemoryService, stored: Any, declared: Any
) -> None:
    service.client.create_queue("mail", retry_strategy=stored)
    app = shop(1, retry_strategy=declared)

    assert failure_of(synced(app, service.client)) is None
    assert plan_of(app, service.client).steps == ()


def test_a_schedule_is_changed_as_a_whole_and_a_pause_stays(service: MemoryService) -> None:
    synced(shop(2, EARLY), service.client)
    stored = service.client.get_schedule("mail", "early")
    service.client.put_schedule(
        "mail", "early", cron="0 8 * * *", tags={**stored.tags, "by": "hand"}, payload=1,
        expires_in_seconds=60, paused=True,
    )  # fmt: skip
    app = shop(2, ("early", "0 9 * * *"))

    (step,) = plan_of(app, service.client).steps
    synced(app, service.client)

    assert changes(step) == {
        "cron": ("0 8 * * *", "0 9 * * *"),
        "payload": (1, {"task": "digest", "args": {}}),
        "expires_in_seconds": (60, None),
        "tags.by": ("hand", None),
    }
    after = service.client.get_schedule("mail", "early")
    assert (after.cron, after.tags, after.paused) == ("0 9 * * *", {MARK: "shop"}, True)


def test_a_viewer_that_sees_no_payload_finds_no_difference_in_it(service: MemoryService) -> None:
    app = shop(2, EARLY)
    synced(app, service.client)
    viewer = service.connect(service.client.create_key("v", "viewer", ["*"]).secret)

    assert plan_of(app, viewer).steps == ()


# ------------------------------------------------------------------------------------------ pruning


def test_only_what_this_app_made_and_declares_no_more_is_removed(service: MemoryService) -> None:
    synced(shop(2, EARLY, LATE), service.client)
    synced(shop(2, ("others", "0 1 * * *"), name="books"), service.client)
    service.client.put_schedule("mail", "by-hand", cron="0 2 * * *")
    app = shop(2, EARLY)

    kept = plan_of(app, service.client)
    pruned = plan_of(app, service.client, prune=True)
    synced(app, service.client, prune=True)

    assert (kept.steps, kept.undeclared) == ((), (("mail", "late"),))
    assert (steps_of(pruned), pruned.undeclared) == (["remove schedule late of mail"], ())
    left = service.client.get_queue("mail").schedules or ()
    assert [one.name for one in left] == ["by-hand", "early", "others"]


def test_an_app_with_a_name_finds_its_schedules_in_queues_that_it_names_no_more(
    service: MemoryService,
) -> None:
    for name in ("shop", None):
        synced(shop(2, EARLY, name=name), service.client)

        moved = App(name=name)
        moved.queue("letters")
        plan = plan_of(moved, service.client, prune=True)

        found = name is not None
        assert ("remove schedule early of mail" in steps_of(plan)) is found
        synced(moved, service.client, prune=True)
        assert bool(service.client.get_queue("mail").schedules) is not found


def test_queues_are_never_removed(service: MemoryService) -> None:
    synced(shop(2), service.client)

    assert steps_of(plan_of(App(name="shop"), service.client, prune=True)) == []
    assert service.client.get_queue("mail").name == "mail"


def test_a_schedule_of_another_app_is_not_touched(service: MemoryService) -> None:
    synced(shop(2, EARLY, name="books"), service.client)
    before = service.client.get_schedule("mail", "early")
    app = shop(2, ("early", "0 9 * * *"), LATE)

    plan = plan_of(app, service.client, prune=True)
    results = synced(app, service.client, prune=True)

    assert steps_of(plan) == ["conflict schedule early of mail", "create schedule late of mail"]
    error = failure(results)
    assert isinstance(error, Conflict)
    assert "schedule early of mail: it is of the app books: give this one another" in error.detail
    assert service.client.get_schedule("mail", "early").cron == before.cron
    assert service.client.get_schedule("mail", "late").cron == LATE[1]


def test_an_unmarked_schedule_of_a_declared_name_becomes_the_apps(service: MemoryService) -> None:
    service.client.create_queue("mail", shards=2)
    service.client.put_schedule(
        "mail", "early", cron="0 8 * * *", payload={"task": "digest", "args": {}}
    )

    (step,) = plan_of(shop(2, EARLY), service.client).steps

    assert changes(step) == {"tags.headrace-app": (None, "shop")}


def test_an_app_that_gets_a_name_keeps_its_schedules(service: MemoryService) -> None:
    synced(shop(2, EARLY, LATE, name=None), service.client)
    assert service.client.get_schedule("mail", "late").tags == {MARK: "tasks:app"}

    plan = plan_of(shop(2, EARLY, name="shop"), service.client, prune=True)

    assert steps_of(plan) == ["change schedule early of mail", "remove schedule late of mail"]
    assert changes(plan.steps[0]) == {"tags.headrace-app": ("tasks:app", "shop")}


# ------------------------------------------------------------------------------------- what fails


def test_what_is_refused_is_named_and_keeps_the_rest_going_but_no_removal(
    service: MemoryService,
) -> None:
    synced(shop(2, EARLY, LATE), service.client)
    app = shop(3, ("early", "61 8 * * *"), ("noon", "0 12 * * *"))

    results = synced(app, service.client, prune=True)

    assert outcomes(results) == [
        "done change queue mail",
        "failed change schedule early of mail",
        "done create schedule noon of mail",
        "skipped remove schedule late of mail",
    ]
    error = failure(results)
    assert isinstance(error, InvalidRequest)
    assert error.detail.startswith("schedule early of mail: cron has 61 as its minute")
    assert error.detail.endswith("not tried: remove schedule late of mail; 2 of 4 changes done")
    assert [one.field for one in error.errors] == ["queues.mail.schedules.early.cron"]


def test_no_schedule_is_put_into_a_queue_that_could_not_be_made(service: MemoryService) -> None:
    operator = service.connect(service.client.create_key("o", "operator", ["*"]).secret)

    results = synced(shop(2, EARLY), operator)

    assert outcomes(results) == [
        "failed create queue mail",
        "skipped create schedule early of mail",
    ]
    assert isinstance(failure(results), Forbidden)


def test_an_operators_key_is_enough_for_schedules(service: MemoryService) -> None:
    service.client.create_queue("mail", shards=2)
    operator = service.connect(service.client.create_key("o", "operator", ["*"]).secret)

    assert failure_of(synced(shop(2, EARLY), operator)) is None


Hook = Callable[[int, httpx.Request], None]


def hooked(service: MemoryService, hook: Hook) -> Client:
    """A client whose *hook* is called with the number of each call, before it is sent."""
    counted = iter(range(1000))

    def send(request: httpx.Request) -> httpx.Response:
        hook(next(counted), request)
        return service.transport.handle_request(request)

    transport = httpx.MockTransport(send)
    return Client(service.url, service.key, transport=transport, retries=0, sleep=lambda _: None)


class Story:
    """A service where version 1 of an app is deployed, and its version 2."""

    OLD = shop(2, EARLY, ("gone", "0 3 * * *"), retry_strategy={"max_retries": 1})
    NEW = shop(4, ("early", "0 9 * * *"), LATE, retry_strategy={"max_retries": 3})

    def __init__(self) -> None:
        self.service = MemoryService()
        synced(self.OLD, self.service.client)

    def state(self) -> tuple[Queue, dict[str, Schedule]]:
        client = self.service.client
        queue = client.get_queue("mail")
        names = [one.name for one in queue.schedules or ()]
        return queue, {name: client.get_schedule("mail", name) for name in names}

    def summary(self) -> tuple[int, int, dict[str, str | None]]:
        queue, schedules = self.state()
        crons = {name: one.cron for name, one in schedules.items()}
        return queue.shards, queue.retry_strategy.max_retries, crons


SYNCED = (4, 3, {"early": "0 9 * * *", "late": "0 20 * * *"})


def calls_of_one_sync() -> int:
    seen: list[int] = []
    story = Story()
    client = hooked(story.service, lambda number, _: seen.append(number))
    synced(Story.NEW, client, prune=True)
    assert story.summary() == SYNCED
    return len(seen)


CALLS = calls_of_one_sync()


@pytest.mark.parametrize("place", range(CALLS))
@pytest.mark.parametrize("answered", [False, True])
def test_a_service_that_is_lost_in_the_middle_is_said_and_mended_by_the_next(
    place: int,
    answered: bool,  # noqa: FBT001 (a case)
) -> None:
    story = Story()
    before = story.summary()

    def lose(number: int, request: httpx.Request) -> None:
        if number >= place:
            if answered and number == place:
                story.service.transport.handle_request(request)
            raise httpx.ConnectError("away")

    client = hooked(story.service, lose)
    sync = sync_of(Story.NEW, client)
    try:
        steps = sync.plan(prune=True).steps
    except Unavailable:
        assert story.summary() == before
        results = []
    else:
        results = list(sync.apply(steps))
        assert isinstance(failure(results), Unavailable)
        assert len(results) == len(steps) == 4
        done = sum(one.outcome is StepOutcome.DONE for one in results)
        assert f"{done} of 4 changes done" in failure(results).detail
        assert [one.outcome for one in results[done + 1 :]] == [StepOutcome.SKIPPED] * (3 - done)
        left = [step.subject for step in plan_of(Story.NEW, story.service.client, prune=True).steps]
        kept = [one.step.subject for one in results if one.outcome is not StepOutcome.DONE]
        assert left in (kept, kept[1:])  # the one whose answer was lost may have been done
    synced(Story.NEW, story.service.client, prune=True)
    assert story.summary() == SYNCED


@pytest.mark.parametrize("place", range(CALLS))
def test_two_syncs_of_one_app_at_once_both_succeed(place: int) -> None:
    story = Story()

    def other(number: int, _: httpx.Request) -> None:
        if number == place:
            assert failure_of(synced(Story.NEW, story.service.client, prune=True)) is None

    results = synced(Story.NEW, hooked(story.service, other), prune=True)

    assert failure_of(results) is None
    assert story.summary() == SYNCED
    assert story.service.client.get_queue("mail").version == 2


@pytest.mark.parametrize("place", range(CALLS))
def test_what_somebody_else_changes_meanwhile_is_never_written_over_unseen(place: int) -> None:
    """An operator changes a queue at each moment of a sync."""
    story = Story()
    operator = story.service.client

    def change(number: int, _: httpx.Request) -> None:
        if number == place:
            operator.edit_queue("mail", description="by hand", shards=9)

    sync = sync_of(Story.NEW, hooked(story.service, change))
    plan = sync.plan(prune=True)
    shown = {step.queue: changes(step) for step in plan.steps if step.schedule is None}["mail"]
    results = list(sync.apply(plan.steps))

    queue, _ = story.state()
    assert queue.description == "by hand"
    error = failure_of(results)
    if error is not None:
        assert isinstance(error, VersionMismatch)
        assert "queue mail: it was changed meanwhile: shards is 9; run it again" in error.detail
        assert queue.shards == 9
    else:
        first = results[0].step
        assert (queue.shards == 4 and shown["shards"] == (9, 4)) or (
            shown["shards"] == (2, 4) and first.action is SyncAction.CHANGE
        )


def test_a_schedule_that_is_paused_meanwhile_stays_paused(service: MemoryService) -> None:
    synced(shop(2, EARLY), service.client)
    sync = sync_of(shop(2, ("early", "0 9 * * *")), service.client)
    plan = sync.plan()
    early = service.client.get_schedule("mail", "early")
    service.client.put_schedule(
        "mail", "early", cron=early.cron, payload=early.payload, tags=early.tags, paused=True
    )

    assert failure_of(list(sync.apply(plan.steps))) is None
    early = service.client.get_schedule("mail", "early")
    assert (early.cron, early.paused) == ("0 9 * * *", True)


def test_a_schedule_that_is_changed_meanwhile_is_not_written_over(service: MemoryService) -> None:
    synced(shop(2, EARLY), service.client)
    sync = sync_of(shop(2, ("early", "0 9 * * *")), service.client)
    plan = sync.plan()
    service.client.put_schedule("mail", "early", cron="0 7 * * *", tags={MARK: "shop"})

    (result,) = sync.apply(plan.steps)

    assert isinstance(result.error, VersionMismatch)
    assert result.error.detail == (
        "it was changed meanwhile: cron is '0 7 * * *', payload is {}; run it again"
    )
    assert service.client.get_schedule("mail", "early").cron == "0 7 * * *"


def test_a_schedule_that_became_anothers_is_not_removed(service: MemoryService) -> None:
    synced(shop(2, EARLY, LATE), service.client)
    sync = sync_of(shop(2, EARLY), service.client)
    plan = sync.plan(prune=True)
    service.client.put_schedule("mail", "late", cron="0 7 * * *", tags={MARK: "books"})

    (result,) = sync.apply(plan.steps)

    assert isinstance(result.error, VersionMismatch)
    assert service.client.get_schedule("mail", "late").cron == "0 7 * * *"


def test_a_schedule_that_is_gone_already_is_no_failure(service: MemoryService) -> None:
    synced(shop(2, EARLY, LATE), service.client)
    sync = sync_of(shop(2, EARLY), service.client)
    plan = sync.plan(prune=True)
    service.client.delete_schedule("mail", "late")

    assert failure_of(list(sync.apply(plan.steps))) is None


def test_a_queue_that_others_made_otherwise_meanwhile_is_not_taken_for_done(
    service: MemoryService,
) -> None:
    sync = sync_of(shop(2), service.client)
    plan = sync.plan()
    service.client.create_queue("mail", shards=5)

    (result,) = sync.apply(plan.steps)

    assert isinstance(result.error, VersionMismatch)
    assert service.client.get_queue("mail").shards == 5


def test_a_name_still_held_by_a_queue_that_is_being_deleted_is_said(
    service: MemoryService,
) -> None:
    def send(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return problem(409, "queue_exists")
        return service.transport.handle_request(request)

    client = Client("http://test", service.key, transport=httpx.MockTransport(send))

    assert isinstance(failure(synced(shop(2), client)), QueueExists)


def test_an_apps_name_is_within_the_limits_of_a_tag() -> None:
    for name in ("", "x" * 257):
        with pytest.raises(InvalidRequest, match=r"^name must"):
            App(name=name)


def test_a_schedule_leaves_a_tag_for_the_name_of_its_app() -> None:
    app = App()
    task = app.task(name="digest", tags={f"t{n}": "x" for n in range(10)})(digest)
    with pytest.raises(InvalidRequest, match="must have at most 9 tags for a schedule"):
        app.periodic(every=60)(task)
