"""Fixtures for everything: the real engine in memory, and fresh tables from template.yaml."""

import uuid
from collections.abc import Callable, Iterator

import boto3
import pytest
from botocore.config import Config

from infra.local.engine import Engine, running_engine
from infra.local.folder import temporary_folder
from infra.local.stream import add_index
from infra.local.tables import (
    DynamoDBClient,
    TableNames,
    Template,
    create_tables,
    load_template,
)

# The engine believes any credentials; without some, boto3 looks for real ones.
_CREDENTIALS = {
    "region_name": "us-east-1",
    "aws_access_key_id": "local",
    "aws_secret_access_key": "local",
}


@pytest.fixture(scope="session")
def template() -> Template:
    """Give the deployed service's own template."""
    return load_template()


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Run one engine per test process, its data in memory, its stream with the index."""
    with temporary_folder() as folder, running_engine(folder) as running:
        add_index(running.database)
        yield running


@pytest.fixture(scope="session")
def dynamodb(engine: Engine) -> DynamoDBClient:
    """Give a boto3 client of the engine; it may be shared by threads."""
    # As many connections as the race tests have threads; a repeat would hide what went wrong.
    config = Config(max_pool_connections=32, retries={"total_max_attempts": 1})
    return boto3.client("dynamodb", endpoint_url=engine.url, config=config, **_CREDENTIALS)


@pytest.fixture(scope="session")
def new_tables(dynamodb: DynamoDBClient, template: Template) -> Callable[[], TableNames]:
    """Give a function that creates empty tables under names nobody else uses (about 12 ms)."""

    def create() -> TableNames:
        unique = uuid.uuid4().hex[:12]
        names = TableNames(tasks=f"tasks-{unique}", control=f"control-{unique}")
        create_tables(dynamodb, template, names)
        return names

    return create


@pytest.fixture
def tables(new_tables: Callable[[], TableNames]) -> TableNames:
    """Give empty tables to one test."""
    return new_tables()


@pytest.fixture(scope="module")
def module_tables(new_tables: Callable[[], TableNames]) -> TableNames:
    """Give tables that the tests of one module share."""
    return new_tables()
