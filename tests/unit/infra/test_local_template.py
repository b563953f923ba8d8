"""The part of template.yaml that the package holds: as the template has it, all that is read."""

from headrace.local.gateway import load_handler
from headrace.local.tables import load_template
from infra.template import main


def test_the_package_holds_what_the_template_says() -> None:
    assert main(["--check"]) == 0


def test_every_handler_of_the_template_is_in_the_package() -> None:
    found = load_template()["Resources"].values()
    handlers = {
        one["Properties"]["Handler"] for one in found if one["Type"] == "AWS::Serverless::Function"
    }

    assert len(handlers) > 3
    assert all(callable(load_handler(handler)) for handler in handlers)
