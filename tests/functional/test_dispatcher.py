"""The function that sends, called as Lambda calls it, beside a real receiver."""

import json
from dataclasses import replace
from typing import Any

from headrace.domain.plan import TaskSpec
from headrace.domain.push import PushHosts, PushRules, Target
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import State
from headrace.entries import dispatcher
from headrace.runtime.wiring import Settings, build, using
from headrace.store.sqlite import SqliteStore
from tests.invocation import InvocationContext
from tests.unit.push.receiver import GivenAnswer, receiving


def context() -> Any:
    """Return that of a call that begins now: its 900 seconds are over in a long run of tests."""
    return InvocationContext("Dispatcher", 900)


def test_the_timer_starts_what_sends_the_tasks_that_are_due() -> None:
    settings = replace(
        Settings(admin_key="k", poll_after_seconds=0.02),
        push=PushRules(PushHosts.parse("127.0.0.1")),
    )
    use = build(settings, SqliteStore(":memory:"))
    with receiving(lambda got: GivenAnswer(200, got.body)) as receiver, using(use):
        use.queues.create("hooks", QueueSettings(target=Target(url=receiver.url)))
        ids = [
            str(one.id)
            for one in use.tasks.enqueue("hooks", [TaskSpec(json.dumps(n)) for n in range(5)])
        ]
        assert dispatcher.handler({}, context()) == {"started": 1}
        tasks = [use.tasks.get(one) for one in ids]
    assert [(task.state, task.result) for task in tasks] == [
        (State.SUCCEEDED, str(n)) for n in range(5)
    ]
    assert use.push.begin("hooks") is not None  # it gave its seat up
