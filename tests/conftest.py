"""Fixtures for everything: an engine in memory, and fresh tables from template.yaml.

``--engine dynamodb`` puts AWS's own DynamoDB Local under the tests (`make test-dynamodb`);
``--engine none`` leaves out those that want tables, which are the same on every Python.
"""

import copy
import signal
import uuid
from collections.abc import Callable, Iterator

import boto3
import pytest
from botocore.config import Config

from headrace.local.engine import Engine, running_engine
from headrace.local.folder import temporary_folder
from headrace.local.stream import add_index
from headrace.local.tables import (
    DynamoDBClient,
    TableNames,
    Template,
    create_tables,
)
from headrace.store.dynamo import Dialect
from infra.template import load_template
from tests.engine import dynamodb_local

# The engine believes any credentials; without some, boto3 looks for real ones.
_CREDENTIALS = {
    "region_name": "us-east-1",
    "aws_access_key_id": "local",
    "aws_secret_access_key": "local",
}


# Started in the background by a shell, it would be ignored here and in the commands under test.
signal.signal(signal.SIGINT, signal.default_int_handler)

DIALECTS: dict[str, Dialect] = {"embedded": "embedded", "dynamodb": "aws"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the engine be chosen."""
    parser.addoption(
        "--engine",
        choices=(*DIALECTS, "none"),
        default="embedded",
        help="what the tables are on: the embedded engine, AWS's own DynamoDB Local, or nothing",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without an engine, leave out the tests that want one."""
    if config.getoption("--engine") != "none":
        return
    wanting = [item for item in items if "dynamodb_url" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=wanting)
    items[:] = [item for item in items if item not in wanting]


@pytest.fixture(scope="session")
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Give the PartiQL that the engine speaks."""
    return DIALECTS[request.config.getoption("--engine")]


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
def dynamodb_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Give the address of the engine that the tests were asked to use."""
    if request.config.getoption("--engine") == "embedded":
        yield request.getfixturevalue("engine").url
        return
    with dynamodb_local() as running:
        yield running.url


@pytest.fixture(scope="session")
def dynamodb(dynamodb_url: str) -> DynamoDBClient:
    """Give a boto3 client of the engine; it may be shared by threads."""
    # As many connections as the race tests have threads; a repeat would hide what went wrong.
    config = Config(max_pool_connections=32, retries={"total_max_attempts": 1})
    return boto3.client("dynamodb", endpoint_url=dynamodb_url, config=config, **_CREDENTIALS)


@pytest.fixture(scope="session")
def new_tables(
    dynamodb: DynamoDBClient, template: Template, dialect: Dialect
) -> Callable[[], TableNames]:
    """Give a function that creates empty tables under names nobody else uses (about 12 ms)."""
    kept = copy.deepcopy(template)
    if dialect == "aws":
        # DynamoDB Local removes by the real clock what a test keeps by its own, and each of its
        # writes looks through the streams of all tables there ever were.
        for resource in ("TasksTable", "ControlTable"):
            for unwanted in ("TimeToLiveSpecification", "StreamSpecification"):
                kept["Resources"][resource]["Properties"].pop(unwanted, None)

    def create() -> TableNames:
        unique = uuid.uuid4().hex[:12]
        names = TableNames(tasks=f"tasks-{unique}", control=f"control-{unique}")
        create_tables(dynamodb, kept, names)
        return names

    return create


@pytest.fixture
def tables(new_tables: Callable[[], TableNames], dynamodb: DynamoDBClient) -> Iterator[TableNames]:
    """Give empty tables to one test."""
    names = new_tables()
    yield names
    drop_tables(dynamodb, names)


@pytest.fixture(scope="module")
def module_tables(
    new_tables: Callable[[], TableNames], dynamodb: DynamoDBClient
) -> Iterator[TableNames]:
    """Give tables that the tests of one module share."""
    names = new_tables()
    yield names
    drop_tables(dynamodb, names)


def drop_tables(dynamodb: DynamoDBClient, names: TableNames) -> None:
    """Remove tables: DynamoDB Local takes the longer for each call the more there are."""
    for name in (names.tasks, names.control):
        dynamodb.delete_table(TableName=name)
