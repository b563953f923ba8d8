"""What the pages for people who come from a peer show as theirs is what that peer does."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ["PEERS_PYTHON"])


@pytest.mark.parametrize("peer", ["celery", "rq", "dramatiq", "huey"])
def test_their_side_prints_what_the_page_says(peer: str) -> None:
    done = subprocess.run(
        [
            ROOT / PYTHON,
            ROOT / "tests" / "peers" / "their_side.py",
            ROOT / "docs" / "guide" / "coming-from" / f"{peer}.md",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
