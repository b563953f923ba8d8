"""The recorder as Lambda calls it."""

from typing import Any

import pytest

import recorder
from headrace.local.gateway import InvocationContext
from headrace.local.tables import Function
from headrace.runtime.wiring import using
from headrace.store.base import Store
from tests.contract.test_recording import Recorder, new_recorder
from tests.manual_clock import ManualClock
from tests.streamed import SHARD, Unsure, stream_records


@pytest.fixture
def it(store: Store, clock: ManualClock) -> Recorder:
    return new_recorder(store, clock)


CONTEXT: Any = InvocationContext(Function("Recorder", "recorder.handler", 60, 512), lambda: False)


def test_the_handler_answers_as_lambda_wants_it(it: Recorder) -> None:
    queue = it.world.queue()
    it.world.put(queue)
    with using(it.world.use):
        answer = recorder.handler(
            {"shardId": SHARD, "Records": stream_records(it.stream.taken())}, CONTEXT
        )
    assert answer == {"batchItemFailures": [], "state": {}}
    assert it.counts(queue) == (1, 0, 0, 0, 0)


def test_the_handler_names_the_first_record_that_must_come_again(
    store: Store, clock: ManualClock
) -> None:
    unsure = Unsure(store)
    it = new_recorder(unsure.store, clock)
    it.world.put(it.world.queue(), *["{}"] * 3)
    event = {"shardId": SHARD, "Records": stream_records(it.stream.taken()[1:])}
    with using(it.world.use), unsure.failing("lost"):
        answer = recorder.handler(event, CONTEXT)
    assert answer["batchItemFailures"] == [{"itemIdentifier": "2"}]
