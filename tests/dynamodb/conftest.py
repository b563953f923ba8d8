"""What AWS's own engine makes of our statements; `make test-dynamodb` runs these on it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.embedded.service import close_all
from headrace.local.tables import DynamoDBClient, TableNames
from headrace.store.dynamo import DynamoStore
from headrace.store.dynamo.raw_client import RawClient
from tests.aws import Account, account


@pytest.fixture(scope="session", autouse=True)
def _on_aws_own_engine(request: pytest.FixtureRequest) -> None:
    """See that there are tables to run these on."""
    assert request.config.getoption("--engine") == "dynamodb", "run these with --engine dynamodb"


@pytest.fixture
def batch(raw_dynamodb: RawClient, tables: TableNames) -> DynamoStore:
    """Give a store that sends changes as statements, as it is wired."""
    return DynamoStore(raw_dynamodb, tasks_table=tables.tasks, control_table=tables.control)


@pytest.fixture
def single(dynamodb: DynamoDBClient, tables: TableNames) -> DynamoStore:
    """Give a store on the same tables that sends each change in a separate write."""
    return DynamoStore(
        dynamodb, tasks_table=tables.tasks, control_table=tables.control, sender="single"
    )


@pytest.fixture
def aws(
    dynamodb_url: str, tables: TableNames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Account]:
    """Give the account that AWS's clients find in the environment."""
    for name in [each for each in os.environ if each.startswith(("AWS_", "HEADRACE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")
    with account(dynamodb_url, tables) as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", made.url)
        monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", made.url)
        yield made
        close_all()
