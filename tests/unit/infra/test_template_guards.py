"""What stands before the functions of template.yaml, and what a small account does without."""

from pathlib import Path
from typing import Any

import pytest

from headrace.http.request import OPEN_PATHS
from infra import PROJECT_ROOT
from infra.template import SPARK, WAF, Template, load_template

DOOR = {("GET", "/console/sign-in"), ("POST", "/console/sign-in")}


def properties(template: Template, resource: str) -> dict[str, Any]:
    found: dict[str, Any] = template["Resources"][resource]["Properties"]
    return found


def limits_of_routes(template: Template) -> dict[tuple[str, str], str]:
    """Return which parameter limits which route."""
    found = {}
    for setting in properties(template, "Api")["MethodSettings"]:
        assert setting["ThrottlingRateLimit"] == setting["ThrottlingBurstLimit"]
        # A JSON pointer to the path: the slash that the path begins with is encoded too.
        path = setting["ResourcePath"]
        if path != "/*":
            assert path.startswith("/~1")
            assert path.count("/") == 1
            path = path[1:].replace("~1", "/")
        found[setting["HttpMethod"], path] = setting["ThrottlingRateLimit"]["Ref"]
    return found


def test_all_routes_have_a_limit_and_routes_without_a_key_a_lower_one(
    template: Template,
) -> None:
    limits = limits_of_routes(template)

    assert limits.pop(("*", "/*")) == "RequestsPerSecond"
    assert limits.pop(("POST", "/v2/notify")) == "NotificationsPerSecond"
    assert limits.keys() == {("GET", path) for path in OPEN_PATHS} | DOOR
    assert set(limits.values()) == {"OpenRequestsPerSecond"}
    assert template["Parameters"]["OpenRequestsPerSecond"]["Default"] <= 50


def test_the_firewall_keeps_no_request_because_requests_have_keys() -> None:
    firewall = properties(load_template(WAF), "Firewall")
    rules = [rule["Fn::If"] for rule in firewall["Rules"]]
    seen = [firewall, *(rule for _, rule, _ in rules)]

    assert {condition for condition, _, _ in rules} == {"PerAddress", "PerKey"}
    assert [each["VisibilityConfig"]["SampledRequestsEnabled"] for each in seen] == [False] * 3


@pytest.mark.parametrize(("stack", "path"), [("Spark", SPARK), ("Firewall", WAF)])
def test_a_nested_stack_has_every_parameter_that_its_template_takes(
    template: Template, stack: str, path: Path
) -> None:
    nested = properties(template, stack)

    assert PROJECT_ROOT / nested["TemplateURL"] == path
    assert nested["Parameters"].keys() == load_template(path)["Parameters"].keys()


@pytest.mark.parametrize("function", ["ApiFunction", "ConsoleFunction"])
def test_a_function_has_few_routes(template: Template, function: str) -> None:
    """Each needs up to 1,000 bytes of the policy that lets API Gateway call it, of 20,480."""
    assert len(properties(template, function)["Events"]) <= 10
