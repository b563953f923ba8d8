"""The policy of the deploy guide for the role that deploys: exactly what the template needs."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from infra.template import Template, load_template, with_nested_stacks

POLICY: Final = Path(__file__).parents[3] / "docs" / "how-to" / "deployer-policy.json"
SERVICES: Final = {
    "AWS::ApiGateway::Account": "apigateway",
    "AWS::CloudFormation::Stack": "cloudformation",
    "AWS::CloudWatch::Alarm": "cloudwatch",
    "AWS::CloudWatch::Dashboard": "cloudwatch",
    "AWS::DynamoDB::Table": "dynamodb",
    "AWS::EMRServerless::Application": "emr-serverless",
    "AWS::IAM::ManagedPolicy": "iam",
    "AWS::IAM::Policy": "iam",
    "AWS::IAM::Role": "iam",
    "AWS::Lambda::EventSourceMapping": "lambda",
    "AWS::Logs::LogGroup": "logs",
    "AWS::S3::Bucket": "s3",
    "AWS::S3::BucketPolicy": "s3",
    "AWS::SNS::Topic": "sns",
    "AWS::SQS::Queue": "sqs",
    "AWS::Scheduler::Schedule": "scheduler",
    "AWS::SecretsManager::Secret": "secretsmanager",
    "AWS::Serverless::Api": "apigateway",
    "AWS::Serverless::Function": "lambda",
    "AWS::WAFv2::WebACL": "wafv2",
    "AWS::WAFv2::WebACLAssociation": "wafv2",
}
OTHERS: Final = {"events", "kms"}
"""The rules that SAM makes of a function's schedules, and your own key."""

ON_EVERYTHING: Final = {
    "ChanceIsNoResource",
    "LogsAreListedWhole",
    "StreamsHaveIdsForNames",
    "TemplatesAreNoResource",
}
"""Statements whose actions take no resource, or one with an unknown name."""


@pytest.fixture(scope="module")
def template() -> Template:
    return with_nested_stacks(load_template())


@pytest.fixture(scope="module")
def policy() -> list[dict[str, Any]]:
    statements: list[dict[str, Any]] = json.loads(POLICY.read_text())["Statement"]
    return statements


def listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def test_it_speaks_of_the_services_of_the_template_and_of_no_other(
    template: Template, policy: list[dict[str, Any]]
) -> None:
    needed = {SERVICES[resource["Type"]] for resource in template["Resources"].values()}
    given = {action.partition(":")[0] for each in policy for action in listed(each["Action"])}

    assert given == needed | OTHERS


def test_it_names_every_action(policy: list[dict[str, Any]]) -> None:
    assert {each["Effect"] for each in policy} == {"Allow"}
    assert len({each["Sid"] for each in policy}) == len(policy)
    assert not [action for each in policy for action in listed(each["Action"]) if "*" in action]


def test_it_fits_the_inline_policy_of_a_role() -> None:
    whole = json.loads(POLICY.read_text())

    assert len(json.dumps(whole, separators=(",", ":"))) <= 10_240  # IAM's limit for roles


def test_it_is_about_everything_only_where_there_is_no_other_way(
    policy: list[dict[str, Any]],
) -> None:
    assert {each["Sid"] for each in policy if each["Resource"] == "*"} == ON_EVERYTHING


def test_it_reads_and_writes_no_task(policy: list[dict[str, Any]]) -> None:
    actions = {action for each in policy for action in listed(each["Action"])}

    data = ("GetItem", "PutItem", "Query", "Scan", "PartiQL", "UpdateItem", "DeleteItem")
    assert not [action for action in actions if any(word in action for word in data)]


def test_a_role_can_be_handed_only_to_the_services_that_take_one(
    policy: list[dict[str, Any]],
) -> None:
    (passing,) = [each for each in policy if "iam:PassRole" in listed(each["Action"])]

    assert passing["Condition"]["StringEquals"]["iam:PassedToService"]


def test_a_key_is_used_only_through_the_services_that_the_deployer_calls(
    policy: list[dict[str, Any]],
) -> None:
    of_key = [each for each in policy if any(one.startswith("kms:") for one in each["Action"])]

    assert [list(each["Condition"]["StringLike"]) for each in of_key] == [["kms:ViaService"]]
