"""An update while tasks are in flight loses no task and no lease."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import boto3

from headrace import Client
from headrace.client.sending import Report
from headrace.wire.tasks import LeasedTask
from tests.e2e.conftest import soon
from tests.e2e.stack import Stack

_QUEUE = "e2e.update"
_LEASE_SECONDS = 60
_PAUSE_SECONDS = 0.1


def report_on(task: LeasedTask) -> Report:
    return Report(task_id=task.id, lease_id=task.lease.id, status="SUCCEEDED")


@contextmanager
def working(client: Client, enqueued: list[str], finished: Counter[str]) -> Iterator[None]:
    """Enqueue tasks and finish them, one after another, for the length of a with block."""
    stopping = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not stopping.wait(_PAUSE_SECONDS):
                enqueued.append(str(client.enqueue(_QUEUE, {"number": len(enqueued)}).id))
                asked = time.monotonic()
                for task in client.dequeue(_QUEUE, batch_size=5).tasks:
                    [message] = client.report(_QUEUE, [report_on(task)])
                    if message.outcome == "OK":
                        finished[task.id] += 1
                    else:  # it comes back, as its lease was over by then
                        assert time.monotonic() - asked > _LEASE_SECONDS, message
        except BaseException as error:  # noqa: BLE001  told below, in the test's thread
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(300)
    assert not thread.is_alive()
    assert failures == []


def test_an_update_loses_no_task_and_keeps_every_lease(client: Client, stack: Stack) -> None:
    client.create_queue("e2e.held", keepalive_timeout_in_seconds=300)
    client.create_queue(_QUEUE, keepalive_timeout_in_seconds=_LEASE_SECONDS)
    for number in range(5):
        client.enqueue("e2e.held", {"number": number})
    held = client.dequeue("e2e.held", batch_size=5, wait_seconds=5).tasks
    assert len(held) == 5
    before = stack.outputs()
    enqueued: list[str] = []
    finished: Counter[str] = Counter()

    with working(client, enqueued, finished):
        stack.change(Stage="e2e", SettingsTtlSeconds="0", LogLevel="DEBUG", SecretsGeneration="2")

    reports = [report_on(task) for task in held]
    assert {message.outcome for message in client.report("e2e.held", reports)} == {"OK"}
    left: set[str] = set()

    def accounted_for() -> bool:
        """Return whether every task is finished or leased again after its lease ended."""
        left.update(task.id for task in client.dequeue(_QUEUE, batch_size=25, wait_seconds=5).tasks)
        return len(finished) + len(left) >= len(enqueued)

    soon(accounted_for, seconds=300, what="every task finished, or there to be taken")
    assert sorted([*finished, *left]) == sorted(enqueued)
    assert set(finished.values()) <= {1}
    assert len(finished) > 0
    assert stack.outputs() == before, "addresses and names stay"
    assert deployed_log_level(stack) == "DEBUG"


def deployed_log_level(stack: Stack) -> str:
    name = stack.resources()["ApiFunction"]["PhysicalResourceId"]
    settings = boto3.client("lambda").get_function_configuration(FunctionName=name)
    level: str = settings["Environment"]["Variables"]["POWERTOOLS_LOG_LEVEL"]
    return level
