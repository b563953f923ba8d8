"""`headrace smoke` and the checks of a deployment, against the real local service."""

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
from infra.launch import Launched
from tests.waiting import until

ROOT = Path(__file__).parents[2]
SMOKE = ["-m", "headrace.cli.main", "smoke"]
OPERATIONS = ["-m", "pytest", "-q", "-n0", "-pno:cacheprovider", "tests/e2e/test_operations.py"]


@contextmanager
def running(service: Launched, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "functions")}
    environment |= {"HEADRACE_URL": service.url, "HEADRACE_KEY": service.admin_key}
    environment["HEADRACE_STAGE_URL"] = service.url
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


def test_the_local_service_passes_the_smoke_test(service: Launched) -> None:
    with running(service, *SMOKE, "--json") as process:
        out, err = process.communicate(timeout=90)

    assert process.returncode == 0, out + err
    assert {row["outcome"] for row in json.loads(out)["checks"]} == {"ok"}


@pytest.mark.slow
def test_the_local_service_answers_every_operation(service: Launched) -> None:
    with running(service, *OPERATIONS) as process:
        out, err = process.communicate(timeout=90)

    assert process.returncode == 0, out + err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_cleans_up(service: Launched, number: signal.Signals) -> None:
    with (
        Client(service.url, service.admin_key) as client,
        running(service, *SMOKE) as process,
    ):
        until(lambda: list(client.list_queues("smoke-")), 30, every=0.01)
        process.send_signal(number)
        _, err = process.communicate(timeout=30)

        assert list(client.list_queues("smoke-")) == []
    assert process.returncode in (0, 130), err  # 0: it was done before the signal came
