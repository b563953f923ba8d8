"""Rules for every resource of template.yaml and of its nested stacks."""

from collections.abc import Iterator
from typing import Any

import pytest

from infra.template import Template, load_template, with_nested_stacks

LAKE = "arn:${AWS::Partition}:s3:::${Lake}"  # in the nested stack of Spark
WILD = {
    ("LakePolicy", "s3:*"): "a Deny: nothing in plain HTTP",
    ("LakePolicy", "${Lake.Arn}/*"): "likewise",
    ("ApiFunction", "${Lake.Arn}/series/*"): "the charts of long ago, a file for each stretch",
    ("ConsoleFunction", "${Lake.Arn}/series/*"): "likewise",
    ("ConsoleFunction", "${Lake.Arn}/reports/*"): "a file for each proof of a day",
    ("RecorderFunction", "${TasksTable.Arn}/stream/*"): "a stream's name is the time it was made",
    ("RecorderFunction", "${Lake.Arn}/raw/*"): "a file for each batch",
    ("DispatcherFunction", "${Payloads.Arn}/*"): "a file for each large payload",
    ("OperatorPolicy", "${Lake.Arn}/series/*"): "as the API",
    ("PayloadsPolicy", "s3:*"): "as of the lake",
    ("PayloadsPolicy", "${Payloads.Arn}/*"): "likewise",
    **{
        (name, "${Payloads.Arn}/*"): "an object for each large text"
        for name in (
            *("ApiFunction", "ConsoleFunction", "ReaperFunction", "RecorderFunction"),
            *("SchedulerFunction", "OperatorPolicy", "ProducerPolicy", "WorkerPolicy"),
        )
    },
    ("SparkRole", f"{LAKE}/*"): "reads the lake and its own code",
    (
        "SparkRole",
        "arn:${AWS::Partition}:glue:${AWS::Region}:${AWS::AccountId}:table/headrace_${Database}/*",
    ): "the tables in the lake's own database",
    ("SparkRole", f"{LAKE}/raw/dt=*/hh=*/export-*.json.gz"): "a backfill's own, by the hour",
}
"""Where a policy has a star, and why none does without."""

OWN_STACK = (
    "arn:${AWS::Partition}:cloudformation:${AWS::Region}:${AWS::AccountId}"
    ":stack/${AWS::StackName}/*"
)
FOLDERS_OF_SPARK = ("logs", "reports", "series", "state", "tables")
AT_REST = {
    "AWS::DynamoDB::Table": "SSESpecification",
    "AWS::S3::Bucket": "BucketEncryption",
    "AWS::SecretsManager::Secret": "KmsKeyId",
    "AWS::SQS::Queue": "SqsManagedSseEnabled",
}


@pytest.fixture(scope="module")
def template() -> Template:
    return with_nested_stacks(load_template())


def of_type(template: Template, kind: str) -> dict[str, dict[str, Any]]:
    return {
        name: resource
        for name, resource in template["Resources"].items()
        if resource["Type"] == kind
    }


def policies(value: object) -> Iterator[dict[str, Any]]:
    """Find every statement of every policy, wherever it stands."""
    if isinstance(value, dict):
        if "Effect" in value and "Action" in value:
            yield value
        for inner in value.values():
            yield from policies(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from policies(inner)


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)


def test_a_star_in_a_policy_has_its_reason(template: Template) -> None:
    allowed = dict(WILD)
    for folder in FOLDERS_OF_SPARK:
        allowed["SparkRole", f"{LAKE}/{folder}/*"] = "what it makes of raw/"
    for name in ("ProducerPolicy", "WorkerPolicy", "OperatorPolicy"):
        allowed[name, OWN_STACK] = "its id ends in letters of chance"

    starred = {
        (name, text)
        for name, resource in template["Resources"].items()
        for statement in policies(resource)
        for part in ("Action", "Resource")
        for text in texts(statement.get(part, []))
        if "*" in text
    }

    assert starred == allowed.keys()


def test_a_limit_to_some_keys_refuses_a_request_that_names_none(template: Template) -> None:
    """`ForAllValues` alone is true where the request has no such key, as a scan."""
    limited = [
        (name, condition)
        for name, resource in template["Resources"].items()
        for statement in policies(resource)
        for condition in (statement.get("Condition", {}),)
        if any(operator.startswith("ForAllValues:") for operator in condition)
    ]

    assert limited
    for name, condition in limited:
        keys = {key for operator, of in condition.items() if operator != "Null" for key in of}
        assert condition["Null"] == dict.fromkeys(keys, "false"), name


def test_a_function_that_invokes_itself_may_do_so_more_than_16_times(template: Template) -> None:
    invokes = {
        name
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::Serverless::Function"
        for policy in (resource, *of_type(template, "AWS::IAM::Policy").values())
        if policy is resource or {"Ref": f"{name}Role"} in policy["Properties"]["Roles"]
        for statement in policies(policy)
        if statement["Action"] == ["lambda:InvokeFunction"]
        and statement["Resource"] == {"Fn::GetAtt": f"{name}.Arn"}
    }
    allowed = {
        name
        for name, function in of_type(template, "AWS::Serverless::Function").items()
        if function["Properties"].get("RecursiveLoop") == "Allow"
    }

    assert invokes == allowed == {"ReaperFunction", "DispatcherFunction"}


def test_every_function_may_use_the_key_that_encrypts_its_data(template: Template) -> None:
    roles = template["Resources"]["KeyUse"]["Properties"]["Roles"]
    functions = of_type(template, "AWS::Serverless::Function")

    assert [role for role in roles if "Fn::If" not in role] == [
        {"Ref": f"{name}Role"} for name in functions
    ]
    assert {
        "Fn::If": ["Spark", {"Fn::GetAtt": "Spark.Outputs.RoleName"}, {"Ref": "AWS::NoValue"}]
    } in roles


def test_every_bucket_keeps_what_was_overwritten_for_a_while(template: Template) -> None:
    for name, bucket in of_type(template, "AWS::S3::Bucket").items():
        rules = bucket["Properties"]["LifecycleConfiguration"]["Rules"]
        ends = [one for one in rules if "NoncurrentVersionExpiration" in one]

        assert bucket["Properties"]["VersioningConfiguration"] == {"Status": "Enabled"}, name
        assert len(ends) == 1, name
        assert "Prefix" not in ends[0], name
        assert ends[0]["ExpiredObjectDeleteMarker"] is True, name


@pytest.mark.parametrize(("kind", "setting"), AT_REST.items())
def test_what_holds_data_is_encrypted(template: Template, kind: str, setting: str) -> None:
    found = of_type(template, kind)

    assert found
    assert [name for name, of in found.items() if setting not in of["Properties"]] == []
