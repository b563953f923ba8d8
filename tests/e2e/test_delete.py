"""Deleting the stack: everything goes but the tasks and their history."""

import boto3
import pytest

from headrace import Client
from tests.e2e.stack import Stack


def test_the_stack_goes_and_its_tables_and_its_lake_stay(
    client: Client, stack: Stack, outputs: dict[str, str]
) -> None:
    client.create_queue("e2e.kept")
    task = client.enqueue("e2e.kept", {"to": "ada"})

    stack.delete()

    with pytest.raises(Exception, match="does not exist"):
        stack.outputs()
    assert boto3.client("lambda").list_functions()["Functions"] == []
    assert boto3.client("apigateway").get_rest_apis()["items"] == []
    kept = boto3.client("dynamodb").get_item(
        TableName=outputs["TasksTableName"], Key={"task_id": {"S": task.id}}
    )
    assert kept["Item"]["payload"]
    bucket = outputs["LakeAddress"].removeprefix("s3://")
    assert boto3.client("s3").list_objects_v2(Bucket=bucket)["KeyCount"] > 0
