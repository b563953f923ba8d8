"""Metrics of queues for Prometheus, of the service and of a worker."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from headrace import Client
from headrace.client.worker.telemetry.prometheus import PrometheusMetrics, QueueMetrics, queues_of
from headrace.testing import MemoryService
from infra.launch import Launched, launched
from tests.waiting import until

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"


@pytest.fixture(scope="module")
def service() -> Iterator[Launched]:
    with launched() as running, Client(running.url, running.admin_key) as client:
        client.create_queue("mail")
        client.create_queue("other")
        client.enqueue("mail", 1)
        client.enqueue("mail", 2, delay_in_seconds=600)
        until(lambda: 'headrace_queue_scheduled{queue="mail"} 1.0' in counted(running).text)
        yield running


def counted(service: Launched) -> httpx2.Response:
    return metrics(service, service.admin_key)


def metrics(service: Launched, key: str | None) -> httpx2.Response:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx2.get(f"{service.url}/metrics", headers=headers)


def test_the_service_shows_the_queues_of_the_key(service: Launched) -> None:
    with Client(service.url, service.admin_key) as client:
        secret = client.create_key("prometheus", "viewer", ["mail"]).secret
    all_queues, own = counted(service), metrics(service, secret)

    assert all_queues.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'headrace_queue_ready{queue="mail"} 1.0' in own.text
    assert 'headrace_queue_scheduled{queue="mail"} 1.0' in own.text
    assert 'headrace_queue_rate{event="failed",queue="mail"}' in own.text
    assert 'queue="other"' in all_queues.text
    assert 'queue="other"' not in own.text


@pytest.mark.parametrize("key", [None, "wrong"])
def test_without_a_valid_key_there_are_none(service: Launched, key: str | None) -> None:
    refused = metrics(service, key)

    assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")


def worker_registry(service: MemoryService) -> CollectorRegistry:
    registry = CollectorRegistry()
    PrometheusMetrics(registry)
    registry.register(QueueMetrics(lambda: queues_of(service.client, ["mail", "missing"])))
    return registry


def test_a_worker_shows_its_queues() -> None:
    with MemoryService() as service:
        service.client.create_queue("mail")
        service.client.enqueue("mail", 1)
        service.forward(90)
        text = generate_latest(worker_registry(service)).decode()

    assert 'headrace_queue_ready{queue="mail"} 1.0' in text
    (age,) = re.findall(r'headrace_queue_oldest_ready_seconds\{queue="mail"\} (\S+)', text)
    assert float(age) == pytest.approx(90, abs=1)
    assert 'queue="missing"' not in text


def test_the_dashboard_shows_metrics_that_exist() -> None:
    with MemoryService() as service:
        text = generate_latest(worker_registry(service)).decode()
    known = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    panels = json.loads(DASHBOARD.read_text())["panels"]
    shown = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"headrace_\w+", target["expr"])
    }

    assert {re.sub(r"_(bucket|total)$", "", name) for name in shown} <= {
        name.removesuffix("_total") for name in known
    }
    assert len(panels) == len(shown) == 9
