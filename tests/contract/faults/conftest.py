"""Services on a faulty client, in place of the stores that the folder above tests."""

from collections.abc import Callable
from typing import cast

import pytest

from headrace.local.tables import DynamoDBClient, TableNames
from headrace.store.dynamo import DynamoStore, Sender
from tests.contract.conftest import World, new_world
from tests.contract.faults.client import Faults, FaultyClient
from tests.contract.faults.service import FaultyService
from tests.manual_clock import ManualClock


@pytest.fixture(params=["batch", "single"])
def sender(request: pytest.FixtureRequest) -> Sender:
    chosen: Sender = request.param
    return chosen


@pytest.fixture
def new_service(
    dynamodb: DynamoDBClient, tables: TableNames, sender: Sender
) -> Callable[[], FaultyService]:
    """Give a function that starts one more service on the same tables, by the same clock."""
    clock = ManualClock()

    def start() -> FaultyService:
        client = FaultyClient(dynamodb, Faults())
        store = DynamoStore(
            cast("DynamoDBClient", client),
            tasks_table=tables.tasks,
            control_table=tables.control,
            sender=sender,
            sleep=lambda _: None,
        )
        return FaultyService(new_world(store, clock), client, tables)

    return start


@pytest.fixture
def service(new_service: Callable[[], FaultyService]) -> FaultyService:
    return new_service()


@pytest.fixture
def world(service: FaultyService) -> World:
    return service.world
