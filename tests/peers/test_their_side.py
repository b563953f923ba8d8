"""What the pages for people who come from a peer show as theirs is what that peer does."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers.brokers import LeftOut, redis
from tests.peers import programs

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ["PEERS_PYTHON"])
PAGES = ROOT / "docs" / "coming-from"
MODULES = ROOT / "benchmarks" / "peers" / "node_modules"
IN_CI = "CI" in os.environ
"""Where everything is installed: what is missing there is a failure, not left out."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """Give the address of an empty Redis."""
    folder = tmp_path / "redis"
    folder.mkdir()
    try:
        with redis(folder) as running:
            yield running["PEERS_BROKER"]
    except LeftOut as error:
        if IN_CI:
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("peer", ["celery", "rq", "dramatiq", "huey"])
def test_their_side_prints_what_the_page_says(peer: str) -> None:
    done = subprocess.run(
        [
            ROOT / PYTHON,
            ROOT / "tests" / "peers" / "their_side.py",
            PAGES / f"{peer}.md",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(
    not IN_CI and not (MODULES / "bullmq").exists(), reason="BullMQ needs Node.js with npm"
)
def test_bullmq_prints_what_its_page_says(broker: str, tmp_path: Path) -> None:
    page = (PAGES / "bullmq.md").read_text()
    command = programs.bullmq(page, tmp_path, broker, MODULES)

    assert programs.printed(command, tmp_path, {}) == programs.expected(page)


@pytest.mark.skipif(
    not IN_CI and not shutil.which("sidekiq"), reason="apt-get install ruby-sidekiq"
)
def test_sidekiq_prints_what_its_page_says(broker: str, tmp_path: Path) -> None:
    page = (PAGES / "sidekiq.md").read_text()
    command = programs.sidekiq(page, tmp_path)

    assert programs.printed(command, tmp_path, {"REDIS_URL": broker}) == programs.expected(page)
