"""template.yaml: the tables the store is written for, least privilege, and the routes.

Long, because one template is to be read in one place.
"""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any

import pytest

from headrace.domain.errors import (
    Forbidden,
    HeadraceError,
    NotFound,
    PayloadTooLarge,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from headrace.history.changelog import FILLED
from headrace.http import request
from headrace.http.problems import CONTENT_TYPE, problem
from headrace.runtime.function import ALWAYS
from headrace.runtime.settings import Settings
from headrace.store.records import keys as key_records
from headrace.store.records.reaper import PARTS
from infra.sam import NAMES, SETTINGS, template_for_sam_local
from infra.template import SPARK, Template, load_template, main

KEYS_NAMED = {"Null": {"dynamodb:LeadingKeys": "false"}}


def properties(template: Template, resource: str) -> dict[str, Any]:
    found: dict[str, Any] = template["Resources"][resource]["Properties"]
    return found


def functions(template: Template) -> list[str]:
    return [
        name
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::Serverless::Function"
    ]


def statements(template: Template, function: str) -> Iterator[dict[str, Any]]:
    for policy in properties(template, function)["Policies"]:
        yield from policy["Statement"]


def actions(template: Template, function: str, sid: str) -> set[str]:
    return {
        action
        for statement in statements(template, function)
        if statement["Sid"] == sid
        for action in statement["Action"]
    }


def environment(template: Template, function: str) -> dict[str, Any]:
    found: dict[str, Any] = properties(template, function).get("Environment", {})
    variables: dict[str, Any] = found.get("Variables", {})
    return variables


@pytest.mark.parametrize(
    ("variable", "secret", "knowing"),
    [
        (
            "HEADRACE_ADMIN_KEY_ARN",
            "AdminKey",
            ["ApiFunction", "ConsoleFunction", "AuthorizerFunction"],
        ),
        ("HEADRACE_SESSION_SECRET_ARN", "SessionSecret", ["ConsoleFunction"]),
    ],
)
def test_the_stack_makes_a_secret_and_few_functions_read_it(
    template: Template, variable: str, secret: str, knowing: list[str]
) -> None:
    reported = {name: environment(template, name).get(variable) for name in functions(template)}
    allowed = [name for name in functions(template) if actions(template, name, secret)]

    assert {name: reported[name] for name in knowing} == {
        name: {"Fn::GetAtt": f"{secret}.Id"} for name in knowing
    }
    assert [name for name in reported if reported[name]] == allowed == knowing
    assert properties(template, secret)["GenerateSecretString"]["PasswordLength"] >= 32
    assert secret not in template["Parameters"]


def test_no_function_has_a_secret_in_its_environment(template: Template) -> None:
    secret = {"HEADRACE_ADMIN_KEY", "HEADRACE_SESSION_SECRET"}

    for name in functions(template):
        assert not secret & environment(template, name).keys()


def test_the_console_may_do_no_more_than_the_api_except_sign_people_in_and_show_the_proof(
    template: Template,
) -> None:
    of_api = list(statements(template, "ApiFunction"))
    alone = [one["Sid"] for one in statements(template, "ConsoleFunction") if one not in of_api]

    assert alone == ["SessionSecret", "LakeReports"]


def test_the_authorizer_may_only_look_up_keys(template: Template) -> None:
    by_sid = {each["Sid"]: each for each in statements(template, "AuthorizerFunction")}
    statement = by_sid["Control"]

    assert set(by_sid) == {"AdminKey", "Control"}
    assert statement["Action"] == ["dynamodb:GetItem"]
    leading = {"dynamodb:LeadingKeys": [key_records.KIND]}
    assert statement["Condition"] == KEYS_NAMED | {"ForAllValues:StringEquals": leading}


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("UNAUTHORIZED", "unauthenticated"),
        ("AUTHORIZER_FAILURE", "unavailable"),
        ("MISSING_AUTHENTICATION_TOKEN", "not_found"),
        ("REQUEST_TOO_LARGE", "payload_too_large"),
        ("WAF_FILTERED", "forbidden"),
        ("THROTTLED", "rate_limited"),
    ],
)
def test_what_api_gateway_refuses_by_itself_has_the_shape_of_our_errors(
    template: Template, kind: str, code: str
) -> None:
    answer = properties(template, "Api")["GatewayResponses"][kind]
    body = json.loads(answer["ResponseTemplates"]["application/json"])
    headers = answer["ResponseParameters"]["Headers"]
    known: list[type[HeadraceError]] = [
        Forbidden,
        NotFound,
        PayloadTooLarge,
        RateLimited,
        Unauthenticated,
        Unavailable,
    ]
    (error,) = [error(body["detail"]) for error in known if error.code == code]
    ours = problem(error, request_id="$context.requestId")

    assert (body, answer["StatusCode"]) == (json.loads(ours.text()), ours.status)
    fixed = {name: value[1:-1] for name, value in headers.items() if name != "X-Request-Id"}
    assert fixed.items() >= {"Content-Type": CONTENT_TYPE, **ours.headers, **ALWAYS}.items()
    assert headers["X-Request-Id"] == "context.requestId"
    assert headers["X-Consumed-Units"] == "'w=0, r=0'"


def test_what_needs_no_key_is_not_authorized(template: Template) -> None:
    events = properties(template, "ApiFunction")["Events"].values()

    without = {
        event["Properties"]["Path"]
        for event in events
        if event["Properties"].get("Auth", {}).get("Authorizer") == "NONE"
    }
    assert without == request.OPEN_PATHS


def test_the_reaper_may_run_itself_again_and_nothing_else(template: Template) -> None:
    again = properties(template, "ReaperRunsAgain")
    (statement,) = again["PolicyDocument"]["Statement"]

    assert again["Roles"] == [{"Ref": "ReaperFunctionRole"}]
    assert statement["Action"] == ["lambda:InvokeFunction"]
    assert statement["Resource"] == {"Fn::GetAtt": "ReaperFunction.Arn"}
    reserved = properties(template, "ReaperFunction")["ReservedConcurrentExecutions"]
    assert reserved["Fn::If"][1] == PARTS


def test_a_dispatcher_may_run_itself_again_and_the_functions_that_are_allowed(
    template: Template,
) -> None:
    again, targets = (
        properties(template, name)["PolicyDocument"]["Statement"][0]
        for name in ("DispatcherRunsAgain", "DispatcherTargets")
    )

    assert again["Action"] == targets["Action"] == ["lambda:InvokeFunction"]
    assert again["Resource"] == {"Fn::GetAtt": "DispatcherFunction.Arn"}
    assert targets["Resource"] == {"Ref": "PushAllowedFunctions"}
    assert template["Resources"]["DispatcherTargets"]["Condition"] == "PushesToFunctions"
    [event] = properties(template, "DispatcherFunction")["Events"].values()
    assert event["Properties"]["Schedule"] == "rate(1 minute)"


@pytest.mark.parametrize("table", ["TasksTable", "ControlTable"])
def test_a_table_can_be_brought_back_protected_and_encrypted_with_a_key_of_ones_own(
    template: Template, table: str
) -> None:
    of = properties(template, table)

    assert of["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert of["DeletionProtectionEnabled"] == {"Fn::If": ["Protected", True, False]}
    assert of["SSESpecification"]["Fn::If"][:2] == [
        "OwnKey",
        {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": {"Ref": "KmsKeyArn"}},
    ]


@pytest.mark.parametrize("bucket", ["Lake", "Payloads"])
def test_a_bucket_is_private(template: Template, bucket: str) -> None:
    lake = properties(template, bucket)
    (denied,) = properties(template, f"{bucket}Policy")["PolicyDocument"]["Statement"]

    assert set(lake["PublicAccessBlockConfiguration"].values()) == {True}
    assert lake["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    assert "BucketEncryption" in lake
    assert (denied["Effect"], denied["Action"], denied["Principal"]) == ("Deny", "s3:*", "*")
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_a_payload_is_deleted_a_day_after_it_was_removed_and_never_by_its_age(
    template: Template,
) -> None:
    payloads = properties(template, "Payloads")
    removed, unfinished = payloads["LifecycleConfiguration"]["Rules"]

    assert payloads["VersioningConfiguration"] == {"Status": "Enabled"}
    assert removed["NoncurrentVersionExpiration"] == {"NoncurrentDays": 1}
    for rule in (removed, unfinished):
        assert not {"ExpirationInDays", "ExpirationDate", "Transitions"} & rule.keys()


def test_access_logs_show_no_key_and_no_query(template: Template) -> None:
    shown = properties(template, "Api")["AccessLogSetting"]["Format"]

    assert json.loads(shown)["status"] == "$context.status"
    assert not re.search("authorization|header|query|context.path", shown.lower())


def test_spark_never_writes_what_the_recorder_wrote() -> None:
    (policy,) = properties(load_template(SPARK), "Role")["Policies"]
    by_sid = {each.get("Sid"): each for each in policy["PolicyDocument"]["Statement"]}

    lake = "arn:${AWS::Partition}:s3:::${Lake}"
    written = {one["Fn::Sub"] for one in by_sid["Write"]["Resource"]}
    (filled,) = (one for one in written if "/raw/" in one)
    assert written - {filled} == {
        f"{lake}/{part}/*" for part in ("logs", "reports", "series", "state", "tables")
    }
    hour = f"{lake}/raw/dt=2026-11-21/hh=08"
    assert fnmatch(f"{hour}/{FILLED}01795219200000-a1b2c3d4-00000.json.gz", filled)
    assert not fnmatch(f"{hour}/shardId-00000001795219200000-a1b2c3d4-1.json.gz", filled)


# -- the tables of template.yaml in the package ----------------------------------------------------


def test_the_package_has_the_tables_of_the_template() -> None:
    assert main(["--check"]) == 0


# -- the template for sam local --------------------------------------------------------------------


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
