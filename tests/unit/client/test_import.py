"""What importing the SDK costs and brings along."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("module", "name", "package"),
    [
        ("headrace", "PrometheusMetrics", "prometheus_client"),
        ("headrace", "otel", "opentelemetry"),
        ("headrace.outbox.django", "DjangoOutbox", "django"),
        ("headrace.outbox.sqlalchemy", "SqlAlchemyOutbox", "sqlalchemy"),
        ("headrace.spark", "Station", "pyspark"),
    ],
)
def test_what_needs_an_extra_names_it(module: str, name: str, package: str) -> None:
    program = f"import sys; sys.modules['{package}'] = None\n"
    everything = "from headrace import *; print(Worker.__name__)"
    refused = f"try:\n  from {module} import {name}\nexcept ImportError as error: print(error)"

    assert _run(program + everything) == "Worker"
    assert re.fullmatch(
        rf"headrace[.\w]* needs {package}: pip install 'headrace\[\w+\]'", _run(program + refused)
    )
