"""template.yaml: the tables the store is written for, least privilege, and the routes."""

from collections.abc import Iterator
from typing import Any

import pytest

from infra.local.tables import Template

TABLE_ARNS: dict[str, Any] = {
    "Tasks": {"Fn::GetAtt": "TasksTable.Arn"},
    "TasksByState": {"Fn::Sub": "${TasksTable.Arn}/index/by_state"},
    "Control": {"Fn::GetAtt": "ControlTable.Arn"},
}
CREATES_TASKS = {"dynamodb:PutItem", "dynamodb:PartiQLInsert"}


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


def schema(of: dict[str, Any]) -> dict[str, str]:
    return {key["KeyType"]: key["AttributeName"] for key in of["KeySchema"]}


def types(table: dict[str, Any]) -> dict[str, str]:
    return {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}


def test_tasks_are_found_by_id_alone(template: Template) -> None:
    tasks = properties(template, "TasksTable")

    assert schema(tasks) == {"HASH": "task_id"}
    assert types(tasks) == {"task_id": "S", "queue#state": "S", "scheduled_at": "N"}


def test_one_index_has_a_queues_tasks_in_order_of_when_they_need_attention(
    template: Template,
) -> None:
    [index] = properties(template, "TasksTable")["GlobalSecondaryIndexes"]

    assert index["IndexName"] == "by_state"
    assert schema(index) == {"HASH": "queue#state", "RANGE": "scheduled_at"}


def test_the_index_holds_only_what_changes_with_its_keys(template: Template) -> None:
    [index] = properties(template, "TasksTable")["GlobalSecondaryIndexes"]

    assert index["Projection"] == {
        "ProjectionType": "INCLUDE",
        "NonKeyAttributes": ["expires_at", "ttl"],
    }


def test_the_tasks_stream_shows_both_sides_of_a_change(template: Template) -> None:
    tasks = properties(template, "TasksTable")

    assert tasks["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}


def test_the_control_table_has_a_general_key_and_no_stream(template: Template) -> None:
    control = properties(template, "ControlTable")

    assert schema(control) == {"HASH": "pk", "RANGE": "sk"}
    assert types(control) == {"pk": "S", "sk": "S"}
    assert "StreamSpecification" not in control


@pytest.mark.parametrize("table", ["TasksTable", "ControlTable"])
def test_a_table_is_paid_by_use_swept_by_ttl_and_survives_its_stack(
    template: Template, table: str
) -> None:
    swept = {"AttributeName": "ttl", "Enabled": True}

    assert properties(template, table)["BillingMode"] == "PAY_PER_REQUEST"
    assert properties(template, table)["TimeToLiveSpecification"] == swept
    assert template["Resources"][table]["DeletionPolicy"] == "RetainExceptOnCreate"
    assert template["Resources"][table]["UpdateReplacePolicy"] == "Retain"


def test_every_permission_names_its_actions_and_its_table(template: Template) -> None:
    for function in functions(template):
        for statement in statements(template, function):
            assert statement["Effect"] == "Allow"
            assert isinstance(statement["Action"], list)
            assert not [action for action in statement["Action"] if "*" in action]
            assert statement["Resource"] == TABLE_ARNS[statement["Sid"]]


def test_no_function_may_scan(template: Template) -> None:
    for function in functions(template):
        for sid in TABLE_ARNS:
            assert "dynamodb:Scan" not in actions(template, function, sid)


def test_the_reaper_may_do_what_the_api_may_except_make_tasks(template: Template) -> None:
    api = {sid: actions(template, "ApiFunction", sid) for sid in TABLE_ARNS}
    reaper = {sid: actions(template, "ReaperFunction", sid) for sid in TABLE_ARNS}

    assert reaper == api | {"Tasks": api["Tasks"] - CREATES_TASKS}


def test_only_the_api_knows_the_admin_key(template: Template) -> None:
    knowing = [
        function
        for function in functions(template)
        if "HEADRACE_ADMIN_KEY"
        in properties(template, function).get("Environment", {}).get("Variables", {})
    ]

    assert knowing == ["ApiFunction"]
    assert template["Parameters"]["AdminKey"]["NoEcho"] is True


def test_the_api_has_every_v1_path_and_the_brokers_notifications(template: Template) -> None:
    events = properties(template, "ApiFunction")["Events"].values()

    assert {event["Type"] for event in events} == {"Api"}
    assert {event["Properties"]["RestApiId"]["Ref"] for event in events} == {"Api"}
    assert {(event["Properties"]["Method"], event["Properties"]["Path"]) for event in events} == {
        ("ANY", "/v1/{proxy+}"),
        ("POST", "/v2/notify"),
    }


def test_the_reaper_comes_every_minute_and_is_done_before_the_next(template: Template) -> None:
    reaper = properties(template, "ReaperFunction")
    [event] = reaper["Events"].values()

    assert event["Type"] == "Schedule"
    assert event["Properties"]["Schedule"] == "rate(1 minute)"
    assert reaper["Timeout"] < 60
