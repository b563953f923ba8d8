"""Names that other task queues have, and names with a slip in them."""

import asyncio
from typing import Any

import pytest

from headrace import App, Client
from headrace.testing import MemoryService


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("delay", r"say send\.enqueue\(…\)"),
        ("apply_async", r"say send\.options\(delay=…\)\.enqueue\(…\)"),
        ("apply", r"say send\(…\) to run it here, send\.enqueue\(…\) to enqueue it"),
        ("si", r"say send\.s\(…\)"),
    ],
)
def test_what_other_task_queues_call_it_is_answered_with_what_it_is_here(
    name: str, hint: str
) -> None:
    @App().task
    def send(to: str) -> None: ...

    with pytest.raises(AttributeError, match=hint):
        getattr(send, name)
    assert not hasattr(send, name)
    with pytest.raises(AttributeError, match=r"say send\.enqueue\(…\) without \.s$"):
        send.s("ada").delay  # type: ignore[attr-defined]  # noqa: B018


def test_an_enqueued_task_names_the_right_call_for_a_result(service: MemoryService) -> None:
    app = App()

    @app.task
    def send(to: str) -> str:
        return to

    async def awaited() -> None:
        await send.enqueue("ada")  # type: ignore[misc]

    async def gotten() -> None:
        (await send.aenqueue("ada")).get  # type: ignore[attr-defined]  # noqa: B018

    with service.serving(app):
        task = send.enqueue("ada")
        for name, hint in (("get", r"task\.result\(timeout=…\)"), ("revoke", r"task\.cancel\(\)")):
            with pytest.raises(AttributeError, match=f"say {hint}$"):
                getattr(task, name)
        with pytest.raises(AttributeError, match=r"no attribute 'gte'$"):
            task.gte  # type: ignore[attr-defined]  # noqa: B018
        with pytest.raises(TypeError, match=r"say await …\.aenqueue\(…\) instead of"):
            asyncio.run(awaited())
        with pytest.raises(AttributeError, match=r"say await task\.result\(timeout=…\)$"):
            asyncio.run(gotten())


@pytest.mark.parametrize(
    ("way", "option", "hint"),
    [
        ("task", "retry", "task has no option retry: did you mean"),
        ("task", "retries", "no option retries: did you mean max_retries or retry_strategy"),
        ("options", "key", "options has no option key: did you mean dedupe_key"),
        ("count_tasks", "status", "count_tasks has no option status: did you mean state"),
        ("enqueue", "delay", "enqueue has no option delay: did you mean delay_in_seconds"),
        ("options", "countdown", "options has no option countdown: did you mean delay"),
        ("queue", "rate_limit", "queue mail has no option rate_limit: did you mean dequeuing_set"),
        ("queue", "shard", r"queue mail has no option shard: did you mean shards\?"),
    ],
)
def test_an_option_that_is_none_is_told_the_one_that_was_meant(
    way: str, option: str, hint: str
) -> None:
    app = App()
    client = Client("http://queue.test", "key")
    ways: dict[str, Any] = {
        "task": app.task,
        "options": app.task(lambda to: None).options,
        "count_tasks": lambda **wrong: client.count_tasks("mail", **wrong),
        "enqueue": lambda **wrong: client.enqueue("mail", **wrong),
        "queue": lambda **wrong: app.queue("mail", **wrong),
    }
    with pytest.raises(TypeError, match=hint):
        ways[way](**{option: 5})
