"""Whatever is called in whatever order, the promises of design 1 hold after every call."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from headrace.store.dynamo import DynamoStore
from headrace.store.memory import MemoryStore
from infra.local.tables import DynamoDBClient, TableNames
from tests.property.machine import AnyOrder

# The same calls in each run: what fails once fails again.  To look further, try other seeds with
# `pytest tests/property --hypothesis-seed=7` and without derandomize.
COMMON = settings(
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


def test_any_order_of_calls_keeps_every_promise() -> None:
    class InMemory(AnyOrder):
        make_store = MemoryStore

    run_state_machine_as_test(InMemory, settings=settings(COMMON, max_examples=100, stateful_step_count=60))


def test_any_order_of_calls_keeps_every_promise_on_the_real_engine(
    dynamodb: DynamoDBClient, new_tables: Callable[[], TableNames]
) -> None:
    def make_store() -> DynamoStore:
        tables = new_tables()
        return DynamoStore(dynamodb, tasks_table=tables.tasks, control_table=tables.control)

    class OnTheEngine(AnyOrder):
        look_every = 5

    OnTheEngine.make_store = staticmethod(make_store)
    run_state_machine_as_test(OnTheEngine, settings=settings(COMMON, max_examples=8, stateful_step_count=25))
