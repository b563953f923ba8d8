"""What importing the SDK costs and brings along."""

import os
import subprocess
import sys
from pathlib import Path

FUNCTIONS = Path(__file__).parents[3] / "functions"
NOT_NEEDED = [
    "boto3",
    "botocore",
    "pydantic",
    "aws_lambda_powertools",
    "click",
    "rich",
    "headrace.http",
    "headrace.ops",
    "headrace.store",
    "headrace.runtime",
]


def _run(program: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(FUNCTIONS)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed, it has its bytecode
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_the_sdk_brings_nothing_of_the_server_along() -> None:
    program = (
        "import sys; from headrace import App, AsyncClient, Client, Worker; print(*sys.modules)"
    )
    loaded = set(_run(program).split())
    assert not loaded & set(NOT_NEEDED)


def test_importing_the_sdk_takes_less_than_150_ms() -> None:
    program = (
        "import time; start = time.process_time(); from headrace import App, Client; "
        "print(time.process_time() - start)"
    )
    # CPU time, the best of up to thirty: what else the machine does is not meant.
    assert any(float(_run(program)) < 0.150 for _ in range(30))


def test_what_the_package_says_it_has_is_there() -> None:
    program = "import headrace; print(all(getattr(headrace, name) for name in dir(headrace)))"
    assert _run(program) == "True"
