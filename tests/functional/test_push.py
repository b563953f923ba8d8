"""Push, from a task that is enqueued over a file to a real receiver on this machine."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace import webhooks
from headrace.domain.plan import TaskSpec
from headrace.domain.push import PushHosts, PushRules, Target
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State, Task
from headrace.embedded.service import EmbeddedService, service_on
from headrace.embedded.timers import EmbeddedTimers
from headrace.ops.shared.push_status import SEATS, seat_name
from headrace.ops.shared.seats import Seat
from headrace.runtime.wiring import Settings
from tests.unit.push.receiver import GivenAnswer, Receiver, receiving
from tests.waiting import until

RETRIES = RetryStrategy(Backoff.FIXED, max_retries=1, base_seconds=0.1, jitter=0)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


@pytest.fixture
def service(tmp_path: Path) -> Iterator[EmbeddedService]:
    settings = replace(
        Settings(admin_key="k", poll_after_seconds=0.02, settings_ttl_seconds=0),
        push=PushRules(PushHosts.parse("127.0.0.1")),
    )
    one = service_on(str(tmp_path / "tasks.db"), settings)
    with EmbeddedTimers(one, now=one.use.now):
        yield one
    one.close()


def pushed(service: EmbeddedService, url: str, *payloads: Any, **target: Any) -> list[str]:
    """Make a queue that is pushed to *url*, and enqueue; return the ids."""
    settings = QueueSettings(target=Target(url=url, **target), retry_strategy=RETRIES)
    service.use.queues.create("hooks", settings)
    specs = [TaskSpec(json.dumps(payload)) for payload in payloads]
    return [str(one.id) for one in service.use.tasks.enqueue("hooks", specs)]


def ended(service: EmbeddedService, task_id: str) -> Task:
    until(lambda: service.use.tasks.get(task_id).state in (State.SUCCEEDED, State.DEAD), 20)
    return service.use.tasks.get(task_id)


def take_seat_as_an_ended_process(service: EmbeddedService) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended_process:
        pass
    holder = f"{socket.gethostname()}:{ended_process.pid}:0"
    name = seat_name("hooks", 0)
    assert Seat(service.store, service.use.now, holder=holder, kind=SEATS, name=name).take({})


def test_a_dispatcher_that_was_killed_is_replaced_within_seconds(
    service: EmbeddedService, receiver: Receiver
) -> None:
    receiver.answer = lambda _: GivenAnswer(204, b"")
    take_seat_as_an_ended_process(service)
    (task,) = pushed(service, receiver.url, 1)

    until(lambda: service.use.tasks.get(task).state is State.SUCCEEDED, 20)


def test_tasks_reach_the_receiver_signed_and_its_answers_are_their_results(
    service: EmbeddedService, receiver: Receiver
) -> None:
    receiver.answer = lambda got: GivenAnswer(200, got.body)
    ids = pushed(service, receiver.url, *range(30), max_concurrency=3)
    assert [ended(service, one).result for one in ids] == [str(n) for n in range(30)]
    secret = service.use.signing.of(service.use.queues.get("hooks")).secret
    for got in receiver.received:
        webhooks.verify(got.body, got.headers, secret)
    assert {got.headers["webhook-id"] for got in receiver.received} == set(ids)


def test_a_busy_target_gets_it_later_and_no_attempt_is_used(
    service: EmbeddedService, receiver: Receiver
) -> None:
    answers = iter([GivenAnswer(503, headers={"Retry-After": "1"})])
    receiver.answer = lambda _: next(answers, GivenAnswer(200))
    (one,) = pushed(service, receiver.url, 1)
    began = time.monotonic()
    task = ended(service, one)
    assert (task.state, task.attempts, task.errors) == (State.SUCCEEDED, 1, ())
    assert time.monotonic() - began >= 0.9


def test_the_first_request_after_a_rotation_carries_the_new_signature(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.answer = lambda _: GivenAnswer(204, b"")
    rules = PushRules(PushHosts.parse("127.0.0.1"))
    settings = Settings(admin_key="k", poll_after_seconds=0.02, settings_ttl_seconds=10)
    path = str(tmp_path / "tasks.db")
    service = service_on(path, replace(settings, push=rules))
    other = service_on(path, replace(settings, push=rules))
    with EmbeddedTimers(service, now=service.use.now):
        (first,) = pushed(service, receiver.url, 1)
        ended(service, first)
        before = other.use.signing.of(other.use.queues.get("hooks"))

        after = other.use.signing.of(other.use.queues.rotate_signing("hooks"))
        (task,) = other.use.tasks.enqueue("hooks", [TaskSpec("2")])
        ended(service, str(task.id))

    got = receiver.received[-1]
    webhooks.verify(got.body, got.headers, after.secret)
    webhooks.verify(got.body, got.headers, before.secret)
    service.close()
    other.close()
