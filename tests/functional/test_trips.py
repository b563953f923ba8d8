"""The tests of ``trips``, in a process of their own.

Python 3.11 may hang in a profile function where another test has thrown exceptions into threads.
"""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_request_passes_no_more_modules_than_it_may() -> None:
    tests = Path(__file__).with_name("trips.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
