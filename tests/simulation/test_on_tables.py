"""Some seeds on AWS's own DynamoDB Local (``make test-dynamodb``)."""

import pytest

from headrace.local.tables import TableNames
from headrace.store.dynamo import DynamoStore
from headrace.store.dynamo.raw_client import RawClient
from tests.simulation.run import run
from tests.simulation.tables import LoggedTables


@pytest.mark.gate
@pytest.mark.parametrize("seed", range(1, 9))
def test_all_promises_hold_on_tables(
    raw_dynamodb: RawClient, tables: TableNames, seed: int
) -> None:
    tables_store = DynamoStore(raw_dynamodb, tasks_table=tables.tasks, control_table=tables.control)

    result = run(seed, LoggedTables(tables_store))

    assert not result.failures, "\n".join([*result.story[-200:], *result.failures])
