"""What the guide says of workers is so."""

import inspect
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from prometheus_client import REGISTRY

from headrace.client.worker import settings
from headrace.client.worker.settings import WorkerOptions, WorkerSettings
from headrace.client.worker.worker import Worker

GUIDE = (Path(__file__).parents[3] / "docs" / "how-to" / "workers.md").read_text()
SETTINGS = GUIDE.partition("## Settings")[2].partition("\n## ")[0]
CODE = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
FOR_TESTS = {"self", "app", "client", "monotonic", "now", "chance", "options"}


@pytest.fixture
def shop(logging_as_before: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Give a module in which the guide's code runs."""
    monkeypatch.setenv("HEADRACE_URL", "http://localhost:1")
    monkeypatch.setenv("HEADRACE_KEY", "a-key")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    module = sys.modules["shop"] = ModuleType("shop")
    yield module
    del sys.modules["shop"]
    module.app.close()


def test_the_guide_runs_as_it_stands(shop: ModuleType) -> None:
    for code in CODE:
        exec(code, vars(shop))  # noqa: S102 (that is what is tested)

    assert list(shop.worker.settings.queues) == ["mail"]
    shown = set(re.findall(r"^\| `(headrace_\w+)`", GUIDE, re.MULTILINE))
    counted = {
        name
        for family in REGISTRY.collect()
        if family.name.startswith("headrace_")
        for name in [family.name + ("_total" if family.type == "counter" else "")]
    }
    assert shown == counted


def test_every_setting_is_named_with_its_default() -> None:
    named = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", SETTINGS, re.MULTILINE))
    taken = {*inspect.signature(Worker).parameters, *WorkerOptions.__annotations__} - FOR_TESTS

    assert taken == named.keys()
    assert str(settings.THREADS) in named["concurrency"]
    default = WorkerSettings.of(["mail"]).shutdown_timeout
    assert f"{default:g} s" in named["shutdown_timeout"]
