"""Run the tests that depend on the interpreter, and the contract of stores, on each other Python.

Threads, event loops, signals, sqlite3 and types at run time differ between versions of Python.
``make test`` runs every rule on one version.
"""

import subprocess
import sys
from typing import Final

from infra import PROJECT_ROOT
from infra.environments import LAMBDA_PYTHON, set_up

PYTHONS: Final = ("3.11", "3.12", "3.13")
"""The versions that are supported."""

PYTEST: Final = ("-m", "pytest", "--numprocesses=auto", "--maxprocesses=8", "--dist=worksteal")
FOLDERS: Final = ("app", "client", "embedded", "outbox", "store/sqlite", "worker")
EVERY_STORE: Final = ("--engine=sqlite", "tests/unit/store", "tests/contract")


def main(arguments: list[str]) -> int:
    """Run them, with *arguments* for pytest; return the number of versions that failed."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    failed = 0
    for version in PYTHONS:
        if version != own:  # make test runs on that
            tests = [f"tests/unit/{folder}" for folder in FOLDERS]
            more = EVERY_STORE if version == LAMBDA_PYTHON else ()
            python = str(set_up(f".venv-{version}"))
            command = [python, *PYTEST, "-m", "not slow", *tests, *more, *arguments]
            failed += subprocess.run(command, cwd=PROJECT_ROOT, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
