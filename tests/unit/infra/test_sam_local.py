"""The template for `sam local` is the deployed one, with an environment that needs no account."""

from headrace.runtime.settings import Settings
from infra.sam import NAMES, SETTINGS, template_for_sam_local


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
