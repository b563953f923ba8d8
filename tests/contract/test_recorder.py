"""The recorder as Lambda calls it."""

import subprocess
import sys
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


class TestTheHandler:
    def test_it_answers_as_lambda_wants_it_of_a_window(self, it: Recorder) -> None:
        queue = it.world.queue()
        it.world.put(queue)

        with using(it.world.use):
            answer = recorder.handler(
                {"shardId": SHARD, "Records": stream_records(it.stream.taken())}, CONTEXT
            )

        assert answer == {"batchItemFailures": [], "state": {}}
        assert it.counts(queue) == (1, 0, 0, 0, 0)

    def test_the_end_of_a_window_has_no_records(self, it: Recorder) -> None:
        with using(it.world.use):
            answer = recorder.handler({"shardId": SHARD, "Records": []}, CONTEXT)

        assert answer["batchItemFailures"] == []

    def test_it_names_the_first_record_that_must_come_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        unsure = Unsure(store)
        it = new_recorder(unsure.store, clock)
        it.world.put(it.world.queue(), *["{}"] * 3)
        event = {"shardId": SHARD, "Records": stream_records(it.stream.taken()[1:])}

        with using(it.world.use), unsure.failing("lost"):
            answer = recorder.handler(event, CONTEXT)

        assert answer["batchItemFailures"] == [{"itemIdentifier": "2"}]

    def test_it_starts_without_pydantic(self) -> None:
        code = "import sys, recorder; print([m for m in sys.modules if m.startswith('pydantic')])"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="functions")

        assert done.stdout.strip() == "[]"
