"""Whatever is called in whatever order, the promises of design 1 hold after every call."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from headrace.local.tables import TableNames
from headrace.store.base import Store
from headrace.store.dynamo import DynamoStore
from headrace.store.dynamo.raw_client import RawClient
from tests.property.machine import AnyOrder
from tests.property.stores import STORES
from tests.property.walks import in_part

# The same calls in every run: what has failed once fails again.  To look further, raise the number
# of examples, or take `derandomize` away; a failure then prints the line that brings it back.
MEMORY = settings(
    max_examples=4,
    stateful_step_count=60,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
# Nothing is shrunk where each call takes milliseconds: what fails here and not in memory is about
# the store, and its few calls can be read as they are.
LONGER = settings(MEMORY, max_examples=in_part(40))
DEEPER = settings(MEMORY, max_examples=in_part(8), stateful_step_count=400)
QUICK = settings(MEMORY, max_examples=1)
ENGINE = settings(MEMORY, max_examples=4, stateful_step_count=25, phases=[Phase.generate])


@pytest.mark.parametrize(
    ("store", "some"),
    [
        ("memory", MEMORY),
        pytest.param("memory", LONGER, marks=pytest.mark.slow),
        ("sqlite", QUICK),
        pytest.param("sqlite", DEEPER, marks=pytest.mark.slow),
    ],
)
def test_any_order_of_calls_keeps_every_promise(store: str, some: settings) -> None:
    class InMemory(AnyOrder):
        def make_store(self) -> Store:
            return STORES[store]()

    run_state_machine_as_test(InMemory, settings=some)


@pytest.mark.slow
def test_any_order_of_calls_keeps_every_promise_on_the_real_engine(
    raw_dynamodb: RawClient, new_tables: Callable[[], TableNames]
) -> None:
    class OnTheEngine(AnyOrder):
        look_every = 5
        orders_ties = False  # leases of one call end at one time; DynamoDB lists such as it likes

        def make_store(self) -> Store:
            names = new_tables()
            return DynamoStore(
                raw_dynamodb,
                tasks_table=names.tasks,
                control_table=names.control,
            )

    run_state_machine_as_test(OnTheEngine, settings=ENGINE)
