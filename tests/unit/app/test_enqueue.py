"""Enqueueing task functions: options, dedupe keys, missing queues."""

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from headrace import App, Context, RetryStrategy
from headrace.domain.errors import HeadraceError, InvalidRequest, NotEnqueued, NotFound
from headrace.testing import MemoryService
from headrace.testing.clock import START
from headrace.wire.tasks import Task

LATER = START + timedelta(days=1)


def send(to: str, subject: str = "hi") -> str:
    return f"{subject} {to}"


def tasks(service: MemoryService, queue: str = "mail") -> list[Task]:
    return list(service.client.list_tasks(queue, payload=True))


def test_a_type_checker_sees_what_a_task_takes(service: MemoryService) -> None:
    """The comments here are checked: mypy complains of one that is not needed."""
    app = App()

    @app.task(queue="mail")
    def reported(ctx: Context, to: str, *, n: int = 1) -> int:
        return n

    @app.task
    def plain(to: str) -> str:
        return to

    with service.serving(app):
        reported.enqueue("a", n=2)
    assert plain("a").upper() == "A"
    with pytest.raises(InvalidRequest):
        reported.enqueue(to=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        reported.enqueue("a", m=1)  # type: ignore[call-arg]
    with pytest.raises(InvalidRequest):
        reported.options(delay=1).enqueue()  # type: ignore[call-arg]
    with pytest.raises(InvalidRequest):
        plain.enqueue(5)  # type: ignore[arg-type]


def test_a_call_is_enqueued_from_event_loops_and_its_queue_made(service: MemoryService) -> None:
    app = App(async_client=service.async_client)
    task = app.task(queue="other", name="send")(send)

    async def both() -> None:
        await task.aenqueue(to="a")
        await task.options(delay=5).aenqueue(to="b")

    with service.serving(app):
        asyncio.run(both())
        asyncio.run(both())  # another event loop

    stored = tasks(service, "other")
    assert sorted(task.payload["args"]["to"] for task in stored) == ["a", "a", "b", "b"]


def test_options_travel_with_each_task_and_those_of_the_call_go_first(
    service: MemoryService,
) -> None:
    app = App(now=service.clock)
    app.queue("mail", groups={"mode": "fair"})
    task = app.task(
        queue="mail",
        group_key="all",
        max_retries=3,
        lease_seconds=timedelta(minutes=2),
        tags={"a": "1", "b": "1"},
        expires=timedelta(hours=1),
    )(send)
    strategy = RetryStrategy(kind="intervals", intervals=(1, 2), max_retries=2)  # type: ignore[arg-type]
    with service.serving(app):
        task.options(delay=60, dedupe_key="k", tags={"b": "2"}, max_retries=0, id="own").enqueue(
            "a"
        )
        task.options(
            scheduled_at=LATER, retry_strategy=strategy, id="later", group_key="acme"
        ).enqueue("b")

    own, later = service.client.get_task("own"), service.client.get_task("later")
    assert (own.max_retries, own.keepalive_timeout_in_seconds) == (0, 120)
    assert (own.tags, own.dedupe_key) == ({"a": "1", "b": "2"}, "k")
    assert own.expires_at is not None
    assert 3600 <= (own.expires_at - START).total_seconds() - 60 < 3601
    assert (later.scheduled_at, later.max_retries) == (LATER, 2)
    assert (own.group_key, later.group_key) == ("all", "acme")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"scheduled_at": datetime(2026, 1, 1)}, "scheduled_at must be an aware datetime: 2026"),  # noqa: DTZ001
        ({"scheduled_at": LATER, "delay": 1}, "scheduled_at and delay exclude each other"),
        ({"delay": -1}, r"delay must be a number from 0 to 31536000 seconds, not -1"),
        ({"delay": True}, "delay must be seconds or a timedelta, not bool"),
        ({"dedupe_key": "x" * 257}, "dedupe_key must be at most 256 bytes of UTF-8; it is 257"),
        ({"id": "a b"}, "id must be"),
        ({"max_retries": 101}, "max_retries must be a whole number from 0 to 100, not 101"),
        ({"max_retries": 1, "retry_strategy": RetryStrategy()}, "max_retries and retry_strategy"),
        ({"lease_seconds": 0.5}, "lease_seconds must be a number from 1 to 43200 seconds, not 0.5"),
        ({"tags": {str(n): "" for n in range(11)}}, "tags must have at most 10 tags; it has 11"),
        ({"group_key": "x" * 129}, "group_key"),
        ({"queue": "no spaces"}, "queue must be"),
        ({"unique_for": 0}, "unique_for must be a number from 1 to 31536000 seconds, not 0"),
    ],
)
def test_an_option_out_of_its_limits_is_named_with_the_limit(
    options: dict[str, Any], why: str
) -> None:
    task = App().task(send)
    with pytest.raises(InvalidRequest, match=why):
        task.options(**options)


def test_bad_declarations_are_refused_at_once() -> None:
    app = App()
    with pytest.raises(InvalidRequest, match="soft_timeout must be shorter than timeout"):
        app.task(timeout=5, soft_timeout=5)(send)
    with pytest.raises(InvalidRequest, match="queue must be"):
        app.task(queue="a b")(send)
    with pytest.raises(InvalidRequest, match=r"^queue must be 1 to 128"):
        App(queue="a b")
    app.task(name="one")(send)
    again = app.task(name="one", queue="b")(send)
    assert app.tasks == {"one": again}  # a function declared again takes the place of the old one
    with pytest.raises(ValueError, match="another task is named one"):
        app.task(name="one")(test_bad_declarations_are_refused_at_once)


# ------------------------------------------------------------------------------------ dedupe keys


def key_of(*args: Any, dedupe_key: Any, **kwargs: Any) -> str | None:
    task = App().task(queue="mail", name="send", dedupe_key=dedupe_key)(send)
    return task.prepare(*args, **kwargs).task.dedupe_key


def test_a_dedupe_key_comes_from_the_arguments_and_their_defaults() -> None:
    assert key_of("a", dedupe_key="mail:{to}:{subject}") == "mail:a:hi"
    assert key_of("a", dedupe_key=lambda to: f"k:{to}") == "k:a"
    assert key_of("a", dedupe_key=lambda **args: ",".join(sorted(args))) == "subject,to"
    assert key_of("a", dedupe_key=lambda to: None) is None
    digest = key_of("a", dedupe_key=True)
    assert digest == key_of(dedupe_key=True, subject="hi", to="a") != key_of("b", dedupe_key=True)
    task = App().task(queue="mail", dedupe_key="mail:{to}")(send)
    assert task.options(dedupe_key="own").prepare("a").task.dedupe_key == "own"


@pytest.mark.parametrize("dedupe_key", ["mail:{too}", "{}", "x:{", lambda too: None, 5])
def test_a_dedupe_key_that_asks_for_no_argument_is_refused_at_declaration(dedupe_key: Any) -> None:
    with pytest.raises(TypeError, match="dedupe"):
        App().task(dedupe_key=dedupe_key)(send)


def test_a_key_holds_in_the_queue_that_the_call_goes_to(service: MemoryService) -> None:
    app = App()
    task = app.task(queue="mail", dedupe_key="{to}")(send)
    with service.serving(app):
        outcomes = [
            chosen.enqueue("a").outcome
            for chosen in (task, task, task.options(queue="b"), task.options(queue="b"))
        ]
    assert outcomes == ["CREATED", "DUPLICATE", "CREATED", "DUPLICATE"]


def test_the_last_of_many_calls_overwrites_the_waiting_task(service: MemoryService) -> None:
    app = App()
    task = app.task(queue="mail", dedupe_key="{to}", overwrite=["payload", "scheduled_at"])(send)
    with service.serving(app):
        first = task.options(delay=10).enqueue("a", "one")
        last = task.options(delay=60).enqueue("a", "two")
        assert (first.outcome, last.outcome, last.id) == ("CREATED", "OVERWRITTEN", first.id)
        (stored,) = tasks(service)
        assert stored.payload["args"] == {"to": "a", "subject": "two"}
        assert stored.scheduled_at > service.clock.now + timedelta(seconds=50)
    with pytest.raises(InvalidRequest, match="overwrite must be of payload, scheduled_at"):
        task.options(overwrite=["body"])  # type: ignore[list-item]


# ------------------------------------------------------------------------------------------ many


def test_many_calls_are_enqueued_in_order_as_their_results_are_asked_for(
    service: MemoryService,
) -> None:
    app, taken = App(), list[int]()
    task = app.task(queue="mail", tags={"a": "1"})(send)

    def calls() -> Iterator[dict[str, str]]:
        for n in range(60):
            taken.append(n)
            yield {"to": str(n)}

    with service.serving(app):
        results = task.options(queue="bulk").enqueue_each(calls())
        next(results)
        assert len(taken) <= 26
        assert len(list(results)) == 59

    stored = tasks(service, "bulk")
    assert [task.payload["args"]["to"] for task in stored] == [str(n) for n in range(60)]
    assert stored[59].tags == {"a": "1"}


def test_an_event_loop_enqueues_many_calls_too(service: MemoryService) -> None:
    app = App()
    task = app.task(queue="mail")(send)

    async def story() -> list[str | None]:
        made = await task.aenqueue_many({"to": str(n)} for n in range(30))
        return [one.id for one in made] + [
            one.id async for one in task.aenqueue_each([{"to": "x"}])
        ]

    with service.serving(app):
        ids = asyncio.run(story())
    assert sorted(map(str, ids)) == sorted(one.id for one in tasks(service))
    assert len(ids) == 31


@pytest.mark.parametrize("wrong", ["abc", None])
def test_a_call_of_many_that_is_no_mapping_is_named_by_its_place(
    service: MemoryService, wrong: Any
) -> None:
    app = App()
    task = app.task(queue="mail")(send)
    with (
        service.serving(app),
        pytest.raises(InvalidRequest, match=r"^calls\[1\] must be a mapping of arguments by name"),
    ):
        task.enqueue_many([{"to": "ada"}, wrong])
    with pytest.raises(InvalidRequest, match="would make one task of many calls"):
        task.options(id="a").enqueue_many([{"to": "a"}])


def test_an_entry_that_the_service_calls_invalid_is_an_error(service: MemoryService) -> None:
    app = App()
    task = app.task(queue="mail")(send).options(priority="high")  # of a queue without priorities
    calls = [{"to": "a"}, {"to": "b"}]
    why = "priority has no meaning in queue mail"
    with service.serving(app):
        with pytest.raises(NotEnqueued, match=f"^task was not enqueued: {why}"):
            task.enqueue("a")
        with pytest.raises(NotEnqueued, match=rf"^tasks\[0\] was not enqueued: {why}.*and 1 more$"):
            task.enqueue_many(calls)
        results = task.enqueue_many(calls, errors="return")
    assert [result.outcome for result in results] == ["INVALID"] * 2


# -------------------------------------------------------------------------------- missing queues


def test_a_missing_queue_is_made_with_its_declared_settings(service: MemoryService) -> None:
    app = App()
    app.queue("urgent", work=True, shards=2)
    task = app.task(queue="mail")(send)
    app.handler(queue="raw")(lambda payload: None)
    with service.serving(app):
        task.options(queue="urgent").enqueue("a")
        assert service.client.get_queue("urgent").shards == 2
        app.ensure_queues()

    assert {queue.name for queue in service.client.list_queues()} == {"mail", "raw", "urgent"}
    assert app.queues == ["urgent", "mail", "raw"]


def test_a_key_or_an_app_that_makes_no_queues_says_the_command(service: MemoryService) -> None:
    producer = service.connect(service.client.create_key("p", "producer", ["*"]).secret)
    with pytest.raises(NotFound, match="this key may not make queues: run `headrace queue create"):
        App(producer).task(queue="mail")(send).enqueue("a")
    with pytest.raises(NotFound, match="create_queues=False"):
        App(service.client, create_queues=False).task(queue="mail")(send).enqueue("a")
    assert list(service.client.list_queues()) == []


def test_an_app_without_address_says_so_when_it_is_first_needed() -> None:
    with pytest.raises(HeadraceError, match=r"url is missing: give url=… or set HEADRACE_URL"):
        App(key="k").task(send).enqueue("a")
