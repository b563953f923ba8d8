"""`headrace smoke` as a person runs it: a process of its own, against the real local service.

What it finds in deployments that are not sound is in tests/unit/cli/test_smoke.py.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace import Client
from headrace.local.launch import Launched, launched
from tests.waiting import until

ROOT = Path(__file__).parents[2]
SMOKE = [sys.executable, "-P", "-m", "headrace.cli.main", "smoke"]
pytestmark = pytest.mark.slow  # what runs once a minute is waited for


@pytest.fixture(scope="module")
def service() -> Iterator[Launched]:
    with launched() as running:
        yield running


@pytest.fixture
def client(service: Launched) -> Iterator[Client]:
    with Client(service.url, service.admin_key) as made:
        yield made


@contextmanager
def smoking(service: Launched, *options: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "functions")}
    environment |= {"HEADRACE_URL": service.url, "HEADRACE_KEY": service.admin_key}
    with subprocess.Popen(
        [*SMOKE, *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


def names(client: Client) -> list[str]:
    queues = [queue.name for queue in client.list_queues()]
    return queues + [key.name for key in client.list_keys()]


def test_the_local_service_is_sound(service: Launched, client: Client) -> None:
    with smoking(service, "--json") as process:
        out, err = process.communicate(timeout=150)

    assert process.returncode == 0, out + err
    reported = json.loads(out)
    assert {row["outcome"] for row in reported["checks"]} == {"ok"}
    assert reported["left_behind"] == []
    assert reported["seconds"] < 100  # about a minute, on a machine that has other things to do
    assert names(client) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_that_is_cut_off_cleans_up(
    service: Launched, client: Client, number: signal.Signals
) -> None:
    client.create_queue("kept")
    with smoking(service) as process:
        until(lambda: len(names(client)) >= 3, 30)
        process.send_signal(number)
        _, err = process.communicate(timeout=30)

    assert (process.returncode, err.strip()) == (130, "interrupted")
    assert names(client) == ["kept"]
    client.delete_queue("kept")
