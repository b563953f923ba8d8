"""The tables of template.yaml as DynamoDB makes them, and a local service on them."""

import http.client
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from headrace.local.tables import DynamoDBClient, TableNames, create_tables, table_requests
from infra.launch import launched
from tests.conftest import drop_tables

pytestmark = pytest.mark.gate


@pytest.fixture
def names(dynamodb: DynamoDBClient) -> Iterator[TableNames]:
    """Give tables that are made as the template has them, nothing left out."""
    unique = uuid.uuid4().hex[:12]
    names = TableNames(tasks=f"tasks-{unique}", control=f"control-{unique}")
    create_tables(dynamodb, table_requests(), names)
    yield names
    drop_tables(dynamodb, names)


def test_tables_have_stream_index_and_ttl(dynamodb: DynamoDBClient, names: TableNames) -> None:
    tasks = dynamodb.describe_table(TableName=names.tasks)["Table"]
    control = dynamodb.describe_table(TableName=names.control)["Table"]

    assert tasks["TableStatus"] == control["TableStatus"] == "ACTIVE"
    assert tasks["StreamSpecification"]["StreamViewType"] == "NEW_AND_OLD_IMAGES"
    assert [index["IndexName"] for index in tasks["GlobalSecondaryIndexes"]] == ["by_state"]
    assert [key["AttributeName"] for key in control["KeySchema"]] == ["pk", "sk"]
    for name in (names.tasks, names.control):
        ttl = dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
        assert ttl["AttributeName"] == "ttl"
        assert ttl["TimeToLiveStatus"] == "ENABLED"


def test_creating_again_changes_nothing(dynamodb: DynamoDBClient, names: TableNames) -> None:
    dynamodb.put_item(TableName=names.control, Item={"pk": {"S": "kept"}, "sk": {"S": "kept"}})

    create_tables(dynamodb, table_requests(), names)

    assert dynamodb.scan(TableName=names.control)["Count"] == 1


def test_a_service_on_an_endpoint_of_ones_own_keeps_everything_there(
    dynamodb_url: str, dynamodb: DynamoDBClient
) -> None:
    environment = {"HEADRACE_DYNAMODB_URL": dynamodb_url}
    with launched(environment=environment) as service:
        connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=30)
        headers = {"Authorization": f"Bearer {service.admin_key}"}
        headers["Content-Type"] = "application/json"
        text = b""
        for path, body in (
            ("/v1/queues", '{"name": "elsewhere"}'),
            ("/v1/queues/elsewhere/tasks", '{"tasks": [{"payload": 1}]}'),
            ("/v1/queues/elsewhere/dequeue", "{}"),
        ):
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status < 300, text
        connection.close()

    assert b'"payload":1' in text.replace(b" ", b"")
    (task,) = dynamodb.scan(TableName=TableNames().tasks)["Items"]
    assert task["queue#state"]["S"].startswith("elsewhere#INFLIGHT#")
    drop_tables(dynamodb, TableNames())
