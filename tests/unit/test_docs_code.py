"""The code of the how-to guides runs as it stands."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from cryptography.fernet import Fernet
from prometheus_client import REGISTRY

from benchmarks.bill import OFFLOAD_BYTES
from headrace import RetryStrategy
from headrace.client.worker import settings
from headrace.client.worker.settings import WorkerSettings
from headrace.domain.queue_settings import PrioritySettings, QueueSettings
from headrace.testing import inline
from tests.documented_lines import FENCE, PAGES

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "outbox": "tests/unit/outbox/test_guide.py",
    "large-payloads": "tests/functional/test_guide_large_payloads.py",
    "modules": "tests/unit/app/test_modules_guide.py",
    "testing": "tests/unit/testing/test_guide.py",
}
"""Pages whose code needs files, a database or Spark: the test that runs it."""

SPARK = ("spark-jobs", "stations", "read-the-lake")  # tests/pipeline runs what they show
EXAMPLE = "# examples/"  # such blocks are compared with the files that they show


def blocks(page: Path) -> list[str]:
    found = [code for language, code in FENCE.findall(page.read_text()) if language == "python"]
    return [code for code in found if not code.startswith(EXAMPLE)]


GUIDES = [
    page
    for folder in ("how-to", "explanation")
    for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    if page.stem not in (*ELSEWHERE, *SPARK) and blocks(page)
]


@pytest.fixture
def shop(logging_as_before: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module, as dataclasses and type hints want one."""
    monkeypatch.setenv("HEADRACE_URL", "http://localhost:1")
    monkeypatch.setenv("HEADRACE_KEY", "a-key")
    monkeypatch.setenv("MAIL_SECRET", Fernet.generate_key().decode())
    module = sys.modules["shop"] = ModuleType("shop")
    yield module
    del sys.modules["shop"]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_the_code_of_a_guide_runs_as_it_stands(page: Path, shop: ModuleType) -> None:
    before, begins, after = re.split(
        r"^(app = .*\n)", "\n".join(blocks(page)), maxsplit=1, flags=re.MULTILINE
    )
    exec(before + begins, vars(shop))  # noqa: S102 (that is what is tested)
    with inline(shop.app):
        exec(after, vars(shop))  # noqa: S102 (likewise)
        shop.app.sync_schedules()
    if page.stem == "metrics":
        assert_metrics_are_listed()


def assert_metrics_are_listed() -> None:
    """Compare the metrics that the page has registered with those of the reference."""
    reference = (ROOT / "docs" / "reference" / "events-and-metrics.md").read_text()
    table = reference.partition("## Metrics of a worker\n")[2].partition("\n## ")[0]
    counted = {
        name
        for family in REGISTRY.collect()
        if family.name.startswith("headrace_")
        for name in [family.name + ("_total" if family.type == "counter" else "")]
    }
    assert set(re.findall(r"^\| `(headrace_\w+)`", table, re.MULTILINE)) == counted


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_other_guides_are_run_by_tests_that_exist(name: str) -> None:
    assert name in (ROOT / ELSEWHERE[name]).read_text()


def test_all_python_in_the_documents_is_python() -> None:
    for page in filter(Path.exists, PAGES):
        for code in blocks(page):
            compile(code, page.name, "exec")


def test_json_in_the_documents_is_json() -> None:
    for page in filter(Path.exists, PAGES):
        for language, code in FENCE.findall(page.read_text()):
            if language == "json":
                json.loads(code.replace("…", ""))


def test_the_defaults_of_a_worker_are_listed() -> None:
    page = (ROOT / "docs" / "reference" / "worker-options.md").read_text()
    named = dict(re.findall(r"^\| `(\w+)` \|[^|]*\| (.*?) \|", page, re.MULTILINE))
    defaults = WorkerSettings.of(["mail"])

    assert named["concurrency"].startswith(f"{settings.THREADS},")
    assert named["shutdown_timeout"] == f"{defaults.shutdown_timeout:g}"
    assert named["child_start_timeout"] == f"{defaults.child_start_timeout:g}"


_MINUTES, _DAYS = 60, 86_400
QUEUE = QueueSettings()
RETRY = QUEUE.retry_strategy


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("retries", f"{RETRY.max_retries} retries after {RETRY.base_seconds} s"),
        ("retries", f"`max_retries=` ({RetryStrategy().max_retries})"),
        ("retries", f"`jitter=` ({RETRY.jitter},"),
        ("workers", f"({QUEUE.keepalive_timeout_in_seconds} s by default)"),
        ("large-payloads", f"{OFFLOAD_BYTES // 1024} KiB ({OFFLOAD_BYTES})"),
        ("priorities", f"aging_in_seconds={PrioritySettings().aging_in_seconds // _MINUTES}m"),
        ("failed-tasks", f"dead after {QUEUE.expires_in_seconds // _DAYS} days"),
    ],
)
def test_defaults_that_guides_name_are_those_of_the_code(page: str, text: str) -> None:
    assert text in (ROOT / "docs" / "how-to" / f"{page}.md").read_text()
