"""The policy that the deploy guide gives to whoever deploys: enough for the template, no more."""

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import pytest

from headrace.local.tables import Template

POLICY: Final = Path(__file__).parents[3] / "docs" / "guide" / "deployer-policy.json"
SERVICES: Final = {
    "AWS::ApiGateway::Account": "apigateway",
    "AWS::CloudWatch::Alarm": "cloudwatch",
    "AWS::CloudWatch::Dashboard": "cloudwatch",
    "AWS::DynamoDB::Table": "dynamodb",
    "AWS::EMRServerless::Application": "emr-serverless",
    "AWS::Glue::Job": "glue",
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
OTHERS: Final = {"cloudformation", "events", "kms"}
"""The stack itself, the rules that SAM makes of a function's schedules, and your own key."""

ON_EVERYTHING: Final = {
    "ChanceIsNoResource",
    "LogsAreListedWhole",
    "StreamsHaveIdsForNames",
    "TemplatesAreNoResource",
}
"""Statements whose actions know no resource, or one whose name nobody knows beforehand."""


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


def test_it_fits_a_role_of_its_own() -> None:
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


STACK: Final = "headrace-production-eu"
CHANCE: Final = "-1A2B3C4D5E6F"


def expanded(template: Template) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield type, logical id and properties of the resources that SAM makes of the template.

    `make e2e` compares these types with those of a deployed stack.
    """
    for name, resource in template["Resources"].items():
        kind, properties = resource["Type"], resource["Properties"]
        if kind == "AWS::Serverless::Api":
            for made in ("RestApi", "Deployment", "Stage"):
                yield f"AWS::ApiGateway::{made}", name, properties
            yield "AWS::Lambda::Permission", "AuthorizerFunction", {}
        elif kind == "AWS::Serverless::Function":
            yield "AWS::Lambda::Function", name, template["Globals"]["Function"] | properties
            yield "AWS::IAM::Role", f"{name}Role", {"Policies": properties["Policies"]}
            if "EventInvokeConfig" in properties:
                yield "AWS::Lambda::EventInvokeConfig", name, properties["EventInvokeConfig"]
            for event, of in properties.get("Events", {}).items():
                yield "AWS::Lambda::Permission", name, {}
                if of["Type"] == "Schedule":
                    yield "AWS::Events::Rule", f"{name}{event}", of["Properties"]
        else:
            yield kind, name, properties


def needs(*actions: str) -> dict[str, set[str]]:
    return {"": set(actions)}


NONE: Final[set[str]] = set()
KMS: Final = {"kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey"}
API: Final = needs(*(f"apigateway:{one}" for one in ("POST", "GET", "PATCH", "PUT", "DELETE")))
POLICY_ACTIONS: Final = needs(
    "iam:CreatePolicy",
    "iam:DeletePolicy",
    "iam:GetPolicy",
    "iam:ListEntitiesForPolicy",
    "iam:ListPolicyVersions",
)
ACTIONS: Final[dict[str, tuple[str, dict[str, set[str]]]]] = {
    "AWS::ApiGateway::Account": ("apigateway:eu-west-1::/account", needs("apigateway:PATCH")),
    "AWS::ApiGateway::Deployment": ("apigateway:eu-west-1::/restapis/a1/deployments", API),
    "AWS::ApiGateway::RestApi": ("apigateway:eu-west-1::/restapis/a1", API),
    "AWS::ApiGateway::Stage": ("apigateway:eu-west-1::/restapis/a1/stages/prod", API),
    "AWS::CloudWatch::Alarm": (
        "cloudwatch:eu-west-1:1:alarm:{name}",
        needs(*(f"cloudwatch:{one}" for one in ("PutMetricAlarm", "DescribeAlarms"))),
    ),
    "AWS::CloudWatch::Dashboard": (
        "cloudwatch::1:dashboard/{stack}",
        needs("cloudwatch:PutDashboard", "cloudwatch:GetDashboard", "cloudwatch:DeleteDashboards"),
    ),
    "AWS::DynamoDB::Table": (
        "dynamodb:eu-west-1:1:table/{name}",
        needs("dynamodb:CreateTable", "dynamodb:DescribeTable", "dynamodb:DeleteTable")
        | {
            "AttributeDefinitions": NONE,
            "BillingMode": NONE,
            "DeletionProtectionEnabled": {"dynamodb:UpdateTable"},
            "GlobalSecondaryIndexes": NONE,
            "KeySchema": NONE,
            "PointInTimeRecoverySpecification": {"dynamodb:UpdateContinuousBackups"},
            "SSESpecification": KMS | {"kms:Encrypt"},
            "StreamSpecification": {"dynamodb:UpdateTable"},
            "TimeToLiveSpecification": {"dynamodb:UpdateTimeToLive"},
        },
    ),
    "AWS::EMRServerless::Application": (
        "emr-serverless:eu-west-1:1:/applications/0a1b",
        needs("emr-serverless:DeleteApplication", "emr-serverless:GetApplication"),
    ),
    "AWS::Events::Rule": (
        "events:eu-west-1:1:rule/{name}",
        needs(
            *("events:PutRule", "events:PutTargets", "events:DescribeRule"),
            *("events:RemoveTargets", "events:DeleteRule"),
        ),
    ),
    "AWS::Glue::Job": (
        "glue:eu-west-1:1:job/{own}",
        needs("glue:CreateJob", "glue:GetJob", "glue:UpdateJob", "glue:DeleteJob"),
    ),
    "AWS::IAM::ManagedPolicy": ("iam::1:policy/{name}", POLICY_ACTIONS),
    "AWS::IAM::Policy": (
        "iam::1:role/{name}",
        needs("iam:PutRolePolicy", "iam:GetRolePolicy", "iam:DeleteRolePolicy"),
    ),
    "AWS::IAM::Role": (
        "iam::1:role/{name}",
        needs(
            *("iam:CreateRole", "iam:GetRole", "iam:DeleteRole", "iam:PassRole", "iam:TagRole"),
            *("iam:PutRolePolicy", "iam:AttachRolePolicy", "iam:DetachRolePolicy"),
        ),
    ),
    "AWS::Lambda::EventInvokeConfig": (
        "lambda:eu-west-1:1:function:{name}",
        needs(
            *("lambda:PutFunctionEventInvokeConfig", "lambda:GetFunctionEventInvokeConfig"),
            "lambda:DeleteFunctionEventInvokeConfig",
        ),
    ),
    "AWS::Lambda::EventSourceMapping": (
        "lambda:eu-west-1:1:event-source-mapping:0a1b",
        needs(
            *("lambda:CreateEventSourceMapping", "lambda:GetEventSourceMapping"),
            "lambda:DeleteEventSourceMapping",
        ),
    ),
    "AWS::Lambda::Function": (
        "lambda:eu-west-1:1:function:{name}",
        needs("lambda:CreateFunction", "lambda:GetFunction", "lambda:DeleteFunction")
        | {
            "Architectures": NONE,
            "CodeUri": NONE,
            "Description": NONE,
            "Environment": NONE,
            "EventInvokeConfig": NONE,  # a resource of its own
            "Events": NONE,  # likewise
            "Handler": NONE,
            "LoggingConfig": NONE,
            "MemorySize": NONE,
            "Policies": NONE,  # of its role
            "RecursiveLoop": {"lambda:PutFunctionRecursionConfig"},
            "ReservedConcurrentExecutions": {"lambda:PutFunctionConcurrency"},
            "Runtime": NONE,
            "Timeout": NONE,
            "Tracing": NONE,
        },
    ),
    "AWS::Lambda::Permission": (
        "lambda:eu-west-1:1:function:{name}",
        needs("lambda:AddPermission", "lambda:GetPolicy", "lambda:RemovePermission"),
    ),
    "AWS::Logs::LogGroup": (
        "logs:eu-west-1:1:log-group:{name}",
        needs("logs:CreateLogGroup", "logs:DescribeLogGroups", "logs:DeleteLogGroup")
        | {
            "KmsKeyId": {"logs:AssociateKmsKey"},
            "RetentionInDays": {"logs:PutRetentionPolicy"},
        },
    ),
    "AWS::S3::Bucket": (
        "s3:::{bucket}",
        needs("s3:CreateBucket", "s3:DeleteBucket")
        | {
            "BucketEncryption": {"s3:PutEncryptionConfiguration"},
            "LifecycleConfiguration": {"s3:PutLifecycleConfiguration"},
            "OwnershipControls": {"s3:PutBucketOwnershipControls"},
            "PublicAccessBlockConfiguration": {"s3:PutBucketPublicAccessBlock"},
            "VersioningConfiguration": {"s3:PutBucketVersioning"},
        },
    ),
    "AWS::S3::BucketPolicy": (
        "s3:::{bucket}",
        needs("s3:PutBucketPolicy", "s3:GetBucketPolicy", "s3:DeleteBucketPolicy"),
    ),
    "AWS::SNS::Topic": (
        "sns:eu-west-1:1:{name}",
        needs("sns:CreateTopic", "sns:GetTopicAttributes", "sns:DeleteTopic")
        | {"KmsMasterKeyId": {"sns:SetTopicAttributes"}, "Subscription": {"sns:Subscribe"}},
    ),
    "AWS::SQS::Queue": (
        "sqs:eu-west-1:1:{name}",
        needs("sqs:CreateQueue", "sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:DeleteQueue"),
    ),
    "AWS::Scheduler::Schedule": (
        "scheduler:eu-west-1:1:schedule/default/{name}",
        needs(*(f"scheduler:{one}Schedule" for one in ("Create", "Get", "Update", "Delete"))),
    ),
    "AWS::SecretsManager::Secret": (
        "secretsmanager:eu-west-1:1:secret:{own}-aBcDeF",
        needs(*(f"secretsmanager:{one}Secret" for one in ("Create", "Describe", "Delete")))
        | {
            "Description": NONE,
            "GenerateSecretString": {"secretsmanager:GetRandomPassword"},
            "KmsKeyId": {"kms:Decrypt", "kms:GenerateDataKey"},
        },
    ),
    "AWS::WAFv2::WebACL": (
        "wafv2:eu-west-1:1:regional/webacl/{stack}-api/0a1b",
        needs("wafv2:CreateWebACL", "wafv2:GetWebACL", "wafv2:DeleteWebACL"),
    ),
    "AWS::WAFv2::WebACLAssociation": (
        "apigateway:eu-west-1::/restapis/a1/stages/prod",
        needs("wafv2:AssociateWebACL", "wafv2:DisassociateWebACL", "apigateway:SetWebACL"),
    ),
}
"""The ARN of each type's resources as CloudFormation names them, and what it takes to make them.

Under "" is what each resource of the type takes, beside it what a property takes: all properties
are named for a type that has any. From the permissions of the handlers in CloudFormation's schemas.
"""


def test_it_can_make_and_remove_every_resource_of_the_expanded_template(
    template: Template, policy: list[dict[str, Any]]
) -> None:
    refused = []
    for kind, logical_id, properties in expanded(template):
        arn, actions = ACTIONS[kind]
        arn = "arn:aws:" + arn.format(
            name=f"{STACK}-{logical_id}{CHANCE}",
            own=f"{logical_id}{CHANCE}",
            stack=STACK,
            bucket=f"{STACK}-{logical_id.removesuffix('Policy')}{CHANCE}".lower(),
        )
        wanted = set(actions[""])
        if len(actions) > 1:
            wanted |= {action for name in properties for action in actions[name]}
        refused += [
            (action, logical_id)
            for action in sorted(wanted)
            if not any(allows(each, action, arn) for each in policy)
        ]

    assert refused == []


def allows(statement: dict[str, Any], action: str, arn: str) -> bool:
    on = "arn:aws:kms:eu-west-1:1:key/0a1b" if action.startswith("kms:") else arn
    return action in listed(statement["Action"]) and any(
        fnmatchcase(on, pattern) for pattern in listed(statement["Resource"])
    )
