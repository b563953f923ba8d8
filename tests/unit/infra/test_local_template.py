"""The tables of template.yaml in the package."""

from infra.template import main


def test_the_package_has_the_tables_of_the_template() -> None:
    assert main(["--check"]) == 0
