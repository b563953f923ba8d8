"""The part of template.yaml that the package holds: as the template has it, all that is read."""

import pytest

from headrace.local.gateway import load_handler
from headrace.local.tables import Template, load_template, routes, table_request
from infra.template import main


def test_the_package_holds_what_the_template_says() -> None:
    assert main(["--check"]) == 0


def test_the_part_means_what_the_whole_means(template: Template) -> None:
    part = load_template()

    assert routes(part) == routes(template)
    for table in ("TasksTable", "ControlTable"):
        assert table_request(part, table, "t") == table_request(template, table, "t")
        lived = part["Resources"][table]["Properties"].get("TimeToLiveSpecification")
        whole = template["Resources"][table]["Properties"].get("TimeToLiveSpecification")
        assert lived == whole


def test_every_handler_of_the_template_is_in_the_package() -> None:
    found = load_template()["Resources"].values()
    handlers = {
        one["Properties"]["Handler"] for one in found if one["Type"] == "AWS::Serverless::Function"
    }

    assert len(handlers) > 3
    assert all(callable(load_handler(handler)) for handler in handlers)


@pytest.mark.parametrize("name", ["api", "authorizer", "reaper", "recorder", "scheduler"])
def test_lambda_finds_the_same_handler_beside_the_package(name: str) -> None:
    beside = __import__(name)

    assert beside.handler is load_handler(f"{name}.handler")
