"""Enqueueing task functions: options, dedupe keys, missing queues."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from headrace import App, AsyncClient, Context, RetryStrategy
from headrace.client.app.posting import AppQueues, Posting
from headrace.client.app.signature import name_of
from headrace.domain.errors import HeadraceError, InvalidRequest, NotEnqueued, NotFound
from tests.unit.app.app_doubles import NOW, FakeHttp, call


def send(to: str, subject: str = "hi") -> str:
    return f"{subject} {to}"


def service(**settings: Any) -> FakeHttp:
    return FakeHttp(queues={"mail": {}}, **settings)


def only(sent: FakeHttp) -> dict[str, Any]:
    (task,) = sent.tasks
    return task


def test_a_call_is_enqueued_under_its_name_with_the_arguments_given() -> None:
    sent = service()
    task = sent.app().task(queue="mail", name="send")(send)
    result = task.enqueue("a", subject="x")
    assert result.outcome == "CREATED"
    assert only(sent)["payload"] == call("send", to="a", subject="x")
    assert only(sent)["queue"] == "mail"


def test_calling_a_task_calls_the_function() -> None:
    app = service().app()
    assert app.task(send)("a") == "hi a"

    @app.task
    def reported(ctx: Context, to: str) -> str:
        """Say it."""
        return to

    assert reported.__doc__ == "Say it."
    assert reported.envelope({"to": "a"})["args"] == {"to": "a"}


def test_a_type_checker_sees_what_a_task_takes() -> None:
    """The comments here are checked: mypy complains of one that is not needed."""
    app = service().app()

    @app.task(queue="mail")
    def reported(ctx: Context, to: str, *, n: int = 1) -> int:
        return n

    @app.task
    def plain(to: str) -> str:
        return to

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


async def _aenqueue(app: App) -> None:
    task = app.task(queue="other", name="send")(send)
    await task.aenqueue(to="a")
    await task.options(delay=5).aenqueue(to="b")


def test_a_call_is_enqueued_from_an_event_loop_and_its_queue_made() -> None:
    sent = service()
    asyncio.run(_aenqueue(sent.app()))
    assert [task["payload"]["args"]["to"] for task in sent.tasks] == ["a", "b"]
    assert "other" in sent.queues


def test_each_event_loop_has_a_client_of_its_own_with_the_apps_address() -> None:
    def posting() -> Posting:
        return Posting(
            AppQueues(create=True),
            client=service().client(),
            async_client=None,
            url=None,
            key=None,
            codec=None,
            now=lambda: NOW,
        )

    async def clients(post: Posting) -> list[AsyncClient]:
        both = [post.async_client, post.async_client]
        await post.aclose()
        return both

    one = posting()
    first, again = asyncio.run(clients(one))
    other, _ = asyncio.run(clients(one))
    assert first is again
    assert other is not first
    assert first.url == "https://test"


def test_the_clients_of_closed_event_loops_are_let_go() -> None:
    app = service().app()
    post = Posting(
        AppQueues(create=True),
        client=app.client,
        async_client=None,
        url=None,
        key=None,
        codec=None,
        now=lambda: NOW,
    )

    async def client() -> AsyncClient:
        return post.async_client

    loop = asyncio.new_event_loop()  # kept alive, as a client keeps it by its connections
    first = weakref.ref(loop.run_until_complete(client()))
    loop.close()
    asyncio.run(client())
    gc.collect()

    assert first() is None


def test_what_is_declared_travels_with_each_task_and_what_is_chosen_goes_first() -> None:
    sent = service()
    task = sent.app().task(
        queue="mail",
        retries=3,
        keepalive=timedelta(minutes=2),
        tags={"a": "1", "b": "1"},
        expires=timedelta(hours=1),
    )(send)
    task.options(delay=60, key="k", tags={"b": "2"}, retries=0, id="own").enqueue("a")
    entry = only(sent)
    assert entry["retry_strategy"]["max_retries"] == 0
    assert entry["retry_strategy"]["kind"] == "exponential"
    assert entry["keepalive_timeout_in_seconds"] == 120
    assert entry["tags"] == {"a": "1", "b": "2"}
    assert entry["expires_at"].startswith("2026-11-21T09:01:00")
    assert (entry["delay_in_seconds"], entry["dedupe_key"], entry["id"]) == (60, "k", "own")


def test_a_strategy_of_intervals_and_a_moment_can_be_chosen() -> None:
    sent = service()
    task = sent.app().task(queue="mail")(send)
    strategy = RetryStrategy(kind="intervals", intervals=(1, 2))  # type: ignore[arg-type]
    task.options(at=NOW + timedelta(days=1), retries=strategy).enqueue("a")
    assert only(sent)["scheduled_at"].startswith("2026-11-22T08:00:00")
    assert only(sent)["retry_strategy"]["intervals"] == [1, 2]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"at": datetime(2026, 1, 1)}, "at must be an aware datetime: 2026-01-01T00:00:00 has no"),  # noqa: DTZ001
        ({"at": "2026-01-01"}, "at must be a datetime, not str"),
        ({"at": NOW, "delay": 1}, "at and delay exclude each other"),
        ({"delay": -1}, r"delay must be a number from 0 to 31536000 seconds, not -1"),
        ({"delay": True}, "delay must be seconds or a timedelta, not bool"),
        ({"delay": float("nan")}, "delay must be a number from 0 to 31536000 seconds, not nan"),
        ({"expires": 0}, "expires must be a number from 1 to 31536000 seconds, not 0"),
        ({"expires": NOW}, "expires must be after the task is due"),
        ({"key": ""}, "key must not be empty"),
        ({"key": "x" * 257}, "key must be at most 256 bytes of UTF-8; it is 257"),
        ({"id": "a b"}, "id must be"),
        ({"retries": 101}, r"retries.max_retries must be a number from 0 to 100, not 101"),
        ({"retries": True}, "retries must be a number or a RetryStrategy, not bool"),
        ({"retries": RetryStrategy(jitter=2)}, "retries.jitter must be a number"),
        (
            {"retries": RetryStrategy(kind="intervals")},  # type: ignore[arg-type]
            "retries.intervals must have 1 to 100 entries",
        ),
        ({"keepalive": 0.5}, "keepalive must be a number from 1 to 43200 seconds, not 0.5"),
        ({"tags": {"a": "x" * 257}}, "tags.a must be at most 256 bytes"),
        ({"tags": {str(n): "" for n in range(11)}}, "tags must have at most 10 tags; it has 11"),
        ({"tags": {"a": 1}}, "tags.a must be a string"),
    ],
)
def test_an_option_out_of_its_limits_is_named_with_the_limit(
    options: dict[str, Any], why: str
) -> None:
    task = service().app().task(send)
    with pytest.raises(InvalidRequest, match=why):
        task.options(**options)


def test_bad_declarations_are_refused_at_once() -> None:
    app = service().app()
    with pytest.raises(InvalidRequest, match="soft_timeout must be shorter than timeout"):
        app.task(timeout=5, soft_timeout=5)(send)
    with pytest.raises(InvalidRequest, match="expires must be seconds or a timedelta"):
        app.task(expires=NOW)(send)  # type: ignore[call-overload]
    with pytest.raises(InvalidRequest, match="queue must be"):
        app.task(queue="a b")(send)
    app.task(name="one")(send)
    with pytest.raises(ValueError, match="another task is named one"):
        app.task(name="one")(test_bad_declarations_are_refused_at_once)


def test_a_function_declared_again_takes_the_place_of_the_old_one() -> None:
    app = service().app()
    app.task(name="one", queue="a")(send)
    again = app.task(name="one", queue="b")(send)
    assert app.tasks == {"one": again}


def test_an_app_whose_queue_can_be_none_is_refused_where_it_stands() -> None:
    with pytest.raises(InvalidRequest, match=r"^queue must be 1 to 128"):
        App(queue="a b")


# ------------------------------------------------------------------------------------ dedupe keys


def key_of(*args: Any, dedupe: Any, **kwargs: Any) -> str | None:
    sent = service()
    sent.app().task(queue="mail", name="send", dedupe=dedupe)(send).enqueue(*args, **kwargs)
    found: str | None = only(sent).get("dedupe_key")
    return found


def test_a_dedupe_format_is_filled_from_arguments_and_defaults() -> None:
    assert key_of("a", dedupe="mail:{to}:{subject}") == "mail:a:hi"


def test_a_dedupe_function_gets_the_arguments_it_asks_for() -> None:
    assert key_of("a", dedupe=lambda to: f"k:{to}") == "k:a"
    assert key_of("a", dedupe=lambda **args: ",".join(sorted(args))) == "subject,to"
    assert key_of("a", dedupe=lambda to: None) is None


def test_a_digest_is_the_same_however_the_same_call_is_written() -> None:
    digest = key_of("a", dedupe=True)
    assert digest is not None
    assert len(digest) == 64
    assert digest == key_of(dedupe=True, subject="hi", to="a")
    assert digest != key_of("b", dedupe=True)


def test_a_chosen_key_goes_before_the_declared_one() -> None:
    sent = service()
    task = sent.app().task(queue="mail", dedupe="mail:{to}")(send)
    task.options(key="own").enqueue("a")
    assert only(sent)["dedupe_key"] == "own"


@pytest.mark.parametrize("dedupe", ["mail:{too}", "{}", "x:{", "x:}", "{to:", lambda too: None, 5])
def test_a_dedupe_that_asks_for_no_argument_is_refused_at_declaration(dedupe: Any) -> None:
    with pytest.raises(TypeError, match="dedupe"):
        service().app().task(dedupe=dedupe)(send)


# ---------------------------------------------------------------------------------------- many


def test_many_calls_are_enqueued_in_order_and_their_queue_made() -> None:
    sent = FakeHttp()
    task = sent.app().task(queue="mail", tags={"a": "1"})(send)
    results = task.enqueue_many({"to": str(n)} for n in range(60))
    assert len(results) == 60
    assert [entry["payload"]["args"]["to"] for entry in sent.tasks] == [str(n) for n in range(60)]
    assert sent.tasks[59]["tags"] == {"a": "1"}
    assert sent.calls.count("POST queues/mail/tasks") == 4


def test_each_batch_goes_out_as_its_results_are_asked_for() -> None:
    sent = service()
    taken: list[int] = []

    def calls() -> Iterator[dict[str, str]]:
        for n in range(1_000):
            taken.append(n)
            yield {"to": "a"}

    results = sent.app().task(queue="mail")(send).options(delay=1).enqueue_each(calls())
    next(results)
    assert len(taken) == 26
    assert sent.tasks[0]["delay_in_seconds"] == 1


def test_one_id_or_key_for_many_calls_is_refused() -> None:
    task = service().app().task(queue="mail")(send)
    for option in ({"id": "a"}, {"key": "a"}):
        with pytest.raises(InvalidRequest, match="would make one task of many calls"):
            task.options(**option).enqueue_many([{"to": "a"}])  # type: ignore[arg-type]


# -------------------------------------------------------------------------------- missing queues


def test_a_missing_queue_is_made_with_its_declared_settings() -> None:
    sent = FakeHttp()
    app = sent.app()
    app.queue("mail", shards=2)
    app.task(queue="mail")(send).enqueue("a")
    assert sent.queues["mail"] == {"name": "mail", "shards": 2}
    assert len(sent.tasks) == 1


def test_a_key_that_may_not_make_queues_hears_the_command() -> None:
    app = FakeHttp(may_create=False).app()
    with pytest.raises(NotFound, match="this key may not make queues: run `headrace queue create"):
        app.task(queue="mail")(send).enqueue("a")
    with pytest.raises(NotFound, match="headrace queue create mail"):
        app.ensure_queues()


def test_an_app_that_makes_no_queues_says_the_command() -> None:
    sent = FakeHttp()
    app = sent.app(create_queues=False)
    with pytest.raises(NotFound, match="create_queues=False"):
        app.task(queue="mail")(send).enqueue("a")
    assert sent.queues == {}


def test_a_worker_makes_what_is_missing_and_leaves_the_rest() -> None:
    sent = service()
    app = sent.app(queue="first")
    app.task(send)
    app.queue("mail", shards=9)
    app.handler(queue="raw")(lambda payload: None)
    app.ensure_queues()
    assert app.queues == ["first", "raw"]
    assert sent.queues == {"mail": {}, "first": {"name": "first"}, "raw": {"name": "raw"}}


def test_an_entry_that_the_service_calls_invalid_is_an_error() -> None:
    task = service(outcome="INVALID").app().task(queue="mail")(send)
    with pytest.raises(NotEnqueued, match=r"^task was not enqueued: too late$"):
        task.enqueue("a")
    with pytest.raises(NotEnqueued, match=r"^tasks\[0\] was not enqueued: too late, and 1 more$"):
        task.enqueue_many([{"to": "a"}, {"to": "b"}])
    with pytest.raises(NotEnqueued, match=r"^tasks\[0\] was not enqueued: too late$"):
        list(task.enqueue_each([{"to": "a"}, {"to": "b"}]))
    results = task.enqueue_many([{"to": "a"}, {"to": "b"}], errors="return")
    assert [result.outcome for result in results] == ["INVALID"] * 2


def test_an_app_without_address_says_so_when_it_is_first_needed() -> None:
    app = App(key="k")
    with pytest.raises(HeadraceError, match=r"url is missing: give url=… or set HEADRACE_URL"):
        app.task(send).enqueue("a")


# ---------------------------------------------------------------------------------------- names


def test_a_task_is_named_by_module_and_function() -> None:
    def inner() -> None: ...

    assert name_of(send).endswith("test_enqueue.send")
    assert name_of(inner).endswith("module_and_function.inner")
