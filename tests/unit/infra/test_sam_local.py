"""The template for `sam local` is the deployed one, with an environment that needs no account."""

from headrace.local.tables import Template
from headrace.runtime.settings import Settings
from infra.sam import NAMES, SETTINGS, template_for_sam_local


def test_only_the_environment_of_functions_differs(template: Template) -> None:
    local = template_for_sam_local()
    changed = [name for name, of in local["Resources"].items() if of != template["Resources"][name]]

    assert {local["Resources"][name]["Type"] for name in changed} == {"AWS::Serverless::Function"}
    for name in changed:
        own = local["Resources"][name]["Properties"] | {"Environment": None}
        deployed = template["Resources"][name]["Properties"] | {"Environment": None}
        assert own == deployed


def test_every_function_has_settings_that_name_no_account() -> None:
    for name, resource in template_for_sam_local()["Resources"].items():
        if resource["Type"] == "AWS::Serverless::Function":
            reported = resource["Properties"]["Environment"]["Variables"]
            assert SETTINGS.items() <= reported.items(), name
            assert not [key for key in reported if key.endswith("_ARN")], name

    settings = Settings.from_env(SETTINGS)
    assert (settings.tasks_table, settings.control_table) == (NAMES.tasks, NAMES.control)
    assert settings.admin_key
    assert len(settings.session_secret or "") >= 32
    assert settings.lake is None
