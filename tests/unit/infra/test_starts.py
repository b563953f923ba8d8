"""What a Lambda function takes to start: `make build` measures it, here is what makes it small."""

import os
import subprocess
import sys
from functools import cache

import pytest

from infra import starts

NOT_AT_START = {
    "api": {
        *("boto3", "s3transfer", "jinja2", "chalice", "headrace.http.openapi"),
        "aws_lambda_powertools.event_handler",
    },
    "console.app": {"boto3", "s3transfer", "pydantic", "aws_lambda_powertools"},
    "authorizer": {"boto3", "s3transfer", "pydantic", "headrace.ops.tasks.enqueue"},
    "reaper": {"boto3", "s3transfer", "pydantic", "headrace.history.stats", "cronsim"},
    "scheduler": {"boto3", "s3transfer", "pydantic", "headrace.history.stats"},
    "recorder": {"boto3", "s3transfer", "pydantic", "headrace.history.stats", "cronsim"},
    "dispatcher": {"boto3", "s3transfer", "pydantic", "headrace.history.stats", "cronsim"},
}


@cache
def started(function: str) -> list[str]:
    """Start *function* as Lambda does, and return the names of its modules."""
    run = subprocess.run(
        [sys.executable, "-c", f"import sys, {function}\nprint(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | starts.ENVIRONMENT,
    )
    return run.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize("function", starts.BARS)
def test_a_function_imports_at_its_start_nothing_that_is_slow_and_unused(function: str) -> None:
    assert not set(started(function)) & NOT_AT_START[function]
