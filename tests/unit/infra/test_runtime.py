"""One Python for the functions: what runs, builds and tries them, and what docs say of it."""

import re

import pytest

from headrace.local.tables import Template
from infra import PROJECT_ROOT


@pytest.fixture
def version(template: Template) -> str:
    runtime: str = template["Globals"]["Function"]["Runtime"]
    return runtime.removeprefix("python")


def test_lambda_no_longer_escapes_what_is_not_ascii(version: str) -> None:
    # Its client did until 3.12, and made three times as much of an answer in Greek.
    assert tuple(map(int, version.split("."))) >= (3, 12)


@pytest.mark.parametrize("part", ["functions", "console"])
def test_a_package_is_built_for_the_python_that_runs_it(version: str, part: str) -> None:
    recipe = (PROJECT_ROOT / part / "Makefile").read_text()

    assert f"VERSION := {version}\n" in recipe
    assert "--python-version $(VERSION)" in recipe
    assert not re.findall(r"python ?3\.\d+", recipe)


def test_build_and_emulator_have_environments_of_that_python(version: str) -> None:
    recipes = (PROJECT_ROOT / "Makefile").read_text()

    assert f"LAMBDA_PYTHON := {version}\n" in recipes
    assert "$(call lambda_venv,$(BUILD_VENV))" in recipes
    assert "$(call lambda_venv,$(E2E_VENV))" in recipes  # it runs functions with its own Python
