"""Attempts at tasks of an app, over the service in memory."""

import json
from collections.abc import Callable
from typing import Any

from headrace import App, Codec
from headrace.client.codec import PLAIN
from headrace.testing import MemoryService
from headrace.wire.tasks import Task, TaskError

NO_RETRIES = {"retry_strategy": {"max_retries": 0}}


class Backwards:
    """A codec for what nobody else may read."""

    private = True

    def encode(self, value: object) -> bytes:
        return json.dumps(PLAIN.encode(value).decode()[::-1]).encode()

    def decode(self, text: bytes) -> Any:
        return PLAIN.decode(json.loads(text)[::-1].encode())


def call(name: str, **args: Any) -> dict[str, Any]:
    """Return the payload of a call."""
    return {"task": name, "args": args}


def run(app: App, payload: Any = None, *, queue: str = "mail", **fields: Any) -> Task:
    """Let one attempt run; return the task after it."""
    with MemoryService(seed=1) as service:
        client = service.connect(codec=app.codec)
        client.create_queue(queue)
        client.enqueue(queue, payload, id="tsk_1", **fields)
        service.run(app)
        return client.get_task("tsk_1", payload=True)


def ending(handle: Callable[[], Any], codec: Codec = PLAIN, **options: Any) -> Task:
    """Let a raw handler do something; return its task."""
    app = App(codec=codec)
    app.handler(queue="mail", **options)(lambda _payload: handle())
    return run(app)


def failing(error: BaseException, **options: Any) -> TaskError:
    """Let a handler raise *error*; return what is kept of it."""

    def handle() -> None:
        raise error

    return ending(handle, **options).errors[-1]
