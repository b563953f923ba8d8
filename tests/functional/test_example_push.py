"""The receivers of the guide, one behind a real server, get what a queue pushes."""

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn
from msgspec import structs

from examples.push import fastapi_receiver, lambda_receiver
from headrace.domain.plan import TaskSpec
from headrace.domain.push import PushHosts, PushRules, Target
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import State
from headrace.embedded.service import service_on
from headrace.embedded.timers import EmbeddedTimers
from headrace.push.sending import function_event
from headrace.runtime.wiring import Settings
from tests.unit.push.test_sending import TASK
from tests.waiting import until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def served() -> Iterator[int]:
    """Run the example in FastAPI; give its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(fastapi_receiver.app, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(10)
    listener.close()


def test_fastapi_gets_tasks_and_believes_only_what_is_signed(
    served: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(
        Settings(admin_key="k", poll_after_seconds=0.02, settings_ttl_seconds=0),
        push=PushRules(PushHosts.parse("127.0.0.1")),
    )
    service = service_on(str(tmp_path / "tasks.db"), settings)
    url = f"http://127.0.0.1:{served}/tasks"
    for queue in ("hooks", "forged"):
        service.use.queues.create(queue, QueueSettings(target=Target(url=url)))
    secret = service.use.signing.of(service.use.queues.get("hooks")).secret
    monkeypatch.setenv("HEADRACE_SIGNING_SECRET", secret)
    good, bad = (
        str(one.id)
        for one in service.use.tasks.enqueue("hooks", [TaskSpec('{"to": "a"}'), TaskSpec("{}")])
    )
    (forged,) = service.use.tasks.enqueue("forged", [TaskSpec('{"to": "b"}')])
    with EmbeddedTimers(service, now=service.use.now):

        def all_are_answered() -> bool:
            states = {service.use.tasks.get(one).state for one in (good, bad)}
            tried = service.use.tasks.get(str(forged.id)).errors
            return not states & {State.INFLIGHT, State.ENQUEUED} and bool(tried)

        until(all_are_answered, 20)
    assert service.use.tasks.get(good).result == '{"sent":"a"}'
    assert service.use.tasks.get(bad).dead_reason == "rejected"
    assert service.use.tasks.get(str(forged.id)).errors[0].type == "HTTP 401"
    service.close()


def test_a_function_gets_the_task_as_its_event() -> None:
    event = json.loads(function_event(structs.replace(TASK, payload='{"to": "a"}')))
    assert lambda_receiver.handler(event, None) == {"id": "tsk_1", "attempt": 2, "sent": "a"}


@pytest.mark.parametrize("name", ["fastapi_receiver", "lambda_receiver"])
def test_the_guide_shows_the_examples_as_they_are(name: str) -> None:
    guide = (ROOT / "docs" / "how-to" / "push.md").read_text()
    code = (ROOT / "examples" / "push" / f"{name}.py").read_text()
    shown = guide.split(f"# examples/push/{name}.py\n")[1].split("```")[0]
    assert shown.strip() in code
