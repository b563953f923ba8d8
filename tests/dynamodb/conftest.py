"""What AWS's own engine makes of our statements; `make test-dynamodb` runs these on it."""

import pytest

from headrace.local.tables import DynamoDBClient, TableNames
from headrace.store.dynamo import DynamoStore


@pytest.fixture(scope="session", autouse=True)
def _on_aws_own_engine(request: pytest.FixtureRequest) -> None:
    """See that nobody takes the embedded engine's word for it."""
    assert request.config.getoption("--engine") == "dynamodb", "run these with --engine dynamodb"


@pytest.fixture
def batch(dynamodb: DynamoDBClient, tables: TableNames) -> DynamoStore:
    """Give a store that sends changes as statements."""
    return DynamoStore(dynamodb, tasks_table=tables.tasks, control_table=tables.control)


@pytest.fixture
def single(dynamodb: DynamoDBClient, tables: TableNames) -> DynamoStore:
    """Give a store on the same tables that sends each change as a write of its own."""
    return DynamoStore(
        dynamodb, tasks_table=tables.tasks, control_table=tables.control, sender="single"
    )
