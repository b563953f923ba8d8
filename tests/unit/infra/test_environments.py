"""samconfig.toml: each environment is a whole one, with parameters that the template has."""

import re
import tomllib
from typing import Any, Final

import pytest

from infra import PROJECT_ROOT
from infra.template import Template

CONFIG: Final[dict[str, Any]] = tomllib.loads((PROJECT_ROOT / "samconfig.toml").read_text())
NAMES: Final = ("default", "dev", "staging", "prod")


def parameters(name: str) -> dict[str, str]:
    overrides = CONFIG[name]["deploy"]["parameters"].get("parameter_overrides", [])
    return dict(one.split("=", 1) for one in overrides)


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_is_a_stack_of_its_own_that_may_be_deployed(name: str) -> None:
    others = [CONFIG[other]["global"]["parameters"]["stack_name"] for other in NAMES]
    deploy = CONFIG[name]["deploy"]["parameters"]

    assert len(set(others)) == len(NAMES)
    assert all(stack.startswith("headrace") for stack in others)  # docs/guide/deployer-policy.json
    assert (deploy["capabilities"], deploy["resolve_s3"]) == ("CAPABILITY_IAM", True)


@pytest.mark.parametrize("name", NAMES)
def test_its_parameters_are_the_templates_and_may_be_what_they_are(
    template: Template, name: str
) -> None:
    for parameter, value in parameters(name).items():
        declared = template["Parameters"][parameter]
        assert value in map(str, declared.get("AllowedValues", [value]))
        assert re.fullmatch(declared.get("AllowedPattern", ".*"), value)
        assert value != str(declared["Default"]) or parameter == "Stage"
