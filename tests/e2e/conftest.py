"""The deployed service, its stack and its addresses."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from headrace import Client
from headrace.client.sending import Report
from headrace.wire.tasks import LeasedTask
from tests.e2e.stack import Stack
from tests.waiting import until

T = TypeVar("T")


@pytest.fixture(scope="session")
def stack() -> Stack:
    """Give the stack that is deployed."""
    return Stack(Path(os.environ["HEADRACE_E2E_FOLDER"], "sam.log"))


@pytest.fixture(scope="session")
def outputs(stack: Stack) -> dict[str, str]:
    """Give the outputs of the stack."""
    return stack.outputs()


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """Give a client with the first admin key, at the address that API Gateway gave the stage."""
    with Client(os.environ["HEADRACE_STAGE_URL"], os.environ["HEADRACE_KEY"]) as made:
        yield made


def take(client: Client, queue: str) -> LeasedTask:
    """Lease the only task of *queue*."""
    [task] = client.dequeue(queue, wait_seconds=5, worker="gone:1").tasks
    return task


def succeed(client: Client, task: LeasedTask, result: object = None) -> None:
    """Report that *task* succeeded."""
    report = Report(task_id=task.id, lease_id=task.lease.id, status="SUCCEEDED", result=result)
    [message] = client.report(task.queue, [report])
    assert message.outcome == "OK"


def soon(look: Callable[[], T | None], *, seconds: float, what: str) -> T:
    """Return the result of *look* once it is true; each look is a call of the deployment."""
    return until(look, seconds, what=what, every=1.0)
