"""Lines that say which task they are about."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import App, Context
from headrace.client.worker.logs import configure
from headrace.testing import MemoryService

pytestmark = pytest.mark.usefixtures("logging_as_before")

LOG = logging.getLogger("headrace.worker")
HOSTILE = "mail\x1b[2J\x9b\u202e\n2026-11-21 08:00:00,000 INFO headrace.worker: all is well"


def run(app: App, count: int = 1) -> None:
    """Run tasks of the queue mail."""
    with MemoryService() as service:
        service.client.create_queue("mail", priority={"aging_in_seconds": 60})
        for number in range(1, count + 1):
            service.client.enqueue("mail", 1, id=f"task-{number}", priority="high")
        service.run(app)


def letters(app: App) -> None:
    """Add a handler that logs a line."""

    @app.handler(queue="mail", name="letters")
    def handler(payload: Any) -> None:
        logging.getLogger("shop").info("inside", extra={"order": 7, "level": "gold"})


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    """Return what the program logged as JSON."""
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    return [line for line in found if line["logger"] == "shop"]


def test_text_names_task_and_attempt() -> None:
    out, app = io.StringIO(), App()
    configure("text", stream=out)
    letters(app)

    run(app)
    LOG.info("Stopped")

    about = "[task task-1, queue mail, attempt 1, high priority]"
    shown = out.getvalue().splitlines()
    assert any(line.endswith(f"INFO shop: inside {about}") for line in shown)
    assert shown[-1].endswith("INFO headrace.worker: Stopped")


def test_json_is_one_object_a_line_with_what_is_known_of_the_task() -> None:
    out, app = io.StringIO(), App()
    configure("json", stream=out)
    letters(app)

    run(app)
    LOG.error("It failed", exc_info=ValueError("broken"), stack_info=True)

    (line,) = lines(out)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "INFO",
        "extra_level": "gold",  # an extra field does not take the place of the line's own
        "logger": "shop",
        "message": "inside",
        "task_id": "task-1",
        "queue": "mail",
        "attempt": 1,
        "task_name": "letters",
        "priority": "high",
        "order": 7,
    }
    last = json.loads(out.getvalue().splitlines()[-1])
    assert "ValueError: broken" in last["traceback"]
    assert "test_json_is_one_object" in last["stack"]
    assert "task_id" not in last


def test_text_from_outside_can_forge_no_line_and_drive_no_terminal() -> None:
    out = io.StringIO()
    configure("text", stream=out)
    LOG.error("%s failed", HOSTILE, exc_info=ValueError(HOSTILE))
    text = out.getvalue().splitlines()
    configure("json", stream=(as_json := io.StringIO()))
    LOG.info("%s failed", HOSTILE)

    assert "mail\\x1b[2J\\x9b\\u202e" in text[0]
    assert all(line.startswith("    ") for line in text[1:])
    assert "".join(text).isprintable()
    [line] = as_json.getvalue().splitlines()
    assert line.isprintable()
    assert json.loads(line)["message"] == f"{HOSTILE} failed"


def test_lines_of_async_handlers_their_tasks_threads_and_middlewares_carry_their_task() -> None:
    out, app, log = io.StringIO(), App(), logging.getLogger("shop")
    configure("json", stream=out)

    @app.middleware
    def around(ctx: Context) -> Iterator[None]:
        log.info(ctx.id)
        yield

    async def part(ctx: Context) -> None:
        log.info(ctx.id)

    @app.handler(queue="mail")
    async def handler(ctx: Context) -> None:
        await asyncio.sleep(0)
        await asyncio.gather(part(ctx), asyncio.to_thread(log.info, ctx.id))

    run(app, count=3)
    log.info("after")

    *found, after = lines(out)
    assert len(found) == 9
    assert all(line["task_id"] == line["message"] for line in found)
    assert "task_id" not in after
