"""What a Lambda function takes to start: `make build` measures it, here is what makes it small."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from infra import packages, starts

NOT_AT_START = {
    "api": {"boto3", "s3transfer", "jinja2", "chalice", "headrace.http.openapi"},
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


def package(folder: Path, *, compiled: bool = True, size: int = 10) -> Path:
    module = folder / "built" / "ApiFunction" / "botocore" / "session.py"
    module.parent.mkdir(parents=True)
    module.write_bytes(b"#" * size)
    if compiled:
        (module.parent / "session.cpython-313.pyc").write_bytes(b"")
    of_it = module.parents[1] / "botocore-1.44.5.dist-info"
    of_it.mkdir()
    (of_it / "METADATA").write_text("Metadata-Version: 2.1\nName: botocore\nVersion: 1.44.5\n")
    return folder / "built"


def bills(folder: Path, *libraries: tuple[str, str], hashes: int = 1) -> Path:
    """Write a bill of materials of the functions, as the tool of `make build` does."""
    one = {"alg": "SHA-256", "content": "0" * 64}
    links = [{"type": "distribution", "url": "…", "hashes": [one] * hashes}]
    components = [
        {"name": name, "version": version, "externalReferences": links}
        for name, version in libraries
    ]
    (folder / "functions.cdx.json").write_text(json.dumps({"components": components}))
    return folder


RIGHT = ("botocore", "1.44.5")


def test_a_small_package_with_its_bytecode_is_fine(tmp_path: Path) -> None:
    assert packages.main(package(tmp_path), bills(tmp_path, RIGHT)) == 0


def test_a_package_without_bytecode_or_over_its_size_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    over = packages.MOST_BYTES + 1

    assert packages.main(package(tmp_path, compiled=False, size=over), bills(tmp_path, RIGHT)) == 1
    message = capsys.readouterr().err
    assert "ApiFunction: has no bytecode" in message
    assert f"; at most {packages.MOST_BYTES}" in message


def test_that_nothing_was_built_is_no_success(tmp_path: Path) -> None:
    assert packages.main(tmp_path) == 1
