"""`python -m headrace`."""

import subprocess
import sys


def test_the_package_is_the_command_too() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "headrace", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert ran.stdout.startswith("headrace ")
