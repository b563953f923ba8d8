"""Any order of calls to the service, compared with the model after every one."""

import sys
from datetime import datetime
from typing import cast

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from headrace.domain.change import Entry
from headrace.domain.filters import TaskFilter
from headrace.domain.task import SHOWN_STATES, Place, State
from headrace.ops.delivery.reports import ReportOutcome, Reports, ReportStatus, TaskReport
from tests.property.calls import OWN, PLAIN, STATES, queue_names
from tests.property.groups import Groups
from tests.property.model import RETRIES, Known, known
from tests.property.operators import Operators
from tests.property.producers import Producers


class AnyOrder(Producers, Groups, Operators):
    """The rules are calls; the invariants are the promises of design 1, section 2."""

    @initialize()
    def begin(self) -> None:
        for name, rules in self.model.queues.items():
            self.world.use.queues.create(name, rules.settings())
        for name in self.model.queues:
            self.enqueue(name, [OWN, PLAIN])

    @rule(
        queue=queue_names,
        states=st.lists(st.sampled_from(STATES), min_size=1, unique=True),
        limit=st.integers(1, 4),
        descending=st.booleans(),
    )
    def turn_pages(self, queue: str, states: list[str], limit: int, *, descending: bool) -> None:
        now = self.now()
        self._listed(queue, now, states, limit, descending=descending)

    # -- promises ------------------------------------------------------------------------------

    @invariant()
    def tasks_are_what_the_model_says(self) -> None:
        stored = {task_id: known(task) for task_id, task in self.stored().items()}
        for task in self.model.tasks.values():
            there = stored.pop(task.id, None)
            assert there is not None, f"lost: {task}"
            there.beaten, there.first = task.beaten, task.first
            assert there == task
        assert not stored, "gone by the model, but there"

    @invariant()
    def no_task_contradicts_itself(self) -> None:
        for task in self.stored().values():
            lease = (task.lease_id, task.lease_expires_at, task.lease_length)
            if task.state is State.INFLIGHT:
                assert None not in lease
                assert task.scheduled_at <= cast("datetime", task.lease_expires_at)
                assert task.attempts >= 1
            else:
                assert set(lease) == {None}
            if task.state is State.ENQUEUED:
                assert task.scheduled_at == task.due_at
                assert task.expires_at is None or task.due_at < task.expires_at
            if task.state in (State.SUCCEEDED, State.DEAD):
                assert task.scheduled_at == task.finished_at
                assert task.retained_until is not None
            assert (task.dead_reason is not None) == (task.state is State.DEAD)
            retry = self.model.tasks[task.id].retry or self.model.queues[task.queue].retry
            assert 0 <= task.attempts <= len(RETRIES[retry].waits) + 1

    @invariant()
    def index_lists_and_counts_agree(self) -> None:
        if self.calls % self.look_every == 0:
            self._look()

    def _look(self) -> None:
        now, entries = self.clock(), list[Entry]()
        for name, rules in self.model.queues.items():
            self._listed(name, now, [], 250, descending=False)
            for state in SHOWN_STATES:
                for shard in range(rules.shards_in_use):
                    place = Place(name, state, shard)
                    entries += self.world.store.entries(place, limit=500).entries
        stored = self.stored()
        for entry in entries:
            assert not entry.knows_group or entry.group_key == stored[entry.task_id].group_key
        known = [entry._replace(group_key=None, knows_group=False) for entry in entries]
        expected = [
            Entry(
                *(task.id, task.place, task.scheduled_at),
                *(task.expires_at, task.retained_until, task.due_at),
            )
            for task in stored.values()
        ]
        assert sorted(known, key=_by_id) == sorted(expected, key=_by_id)

    def _listed(
        self, queue: str, now: datetime, states: list[str], limit: int, *, descending: bool
    ) -> None:
        wanted = {
            state: self.model.of(queue, state, now) if not states or state in states else []
            for state in STATES
        }
        where = TaskFilter(states=tuple(states))
        inspect, listed, cursor = self.world.use.inspect, list[Known](), None
        for _ in range(1_000):
            page = inspect.list(
                queue, where, limit=limit, cursor=cursor, descending=descending, payload=True
            )
            assert len(page.tasks) <= limit
            listed += [known(task) for task in page.tasks]
            cursor = page.cursor
            if cursor is None:
                break
        in_order = [
            task
            for state in STATES
            for task in (reversed(wanted[state]) if descending else wanted[state])
        ]
        assert sorted(task.id for task in listed) == sorted(task.id for task in in_order)
        assert [(one.state, one.at) for one in listed] == [(one.state, one.at) for one in in_order]
        if self.orders_ties:
            assert [task.id for task in listed] == [task.id for task in in_order]
        counted = inspect.count(queue, where)
        assert counted.count == len(listed)
        assert counted.by_state == {State(state): len(wanted[state]) for state in STATES}

    def teardown(self) -> None:
        """Drain every queue: nothing that was acknowledged may be stuck."""
        if sys.exc_info()[0] is None:  # else a call has failed already: let that be seen
            self._look()
            self._drain()

    def _drain(self) -> None:
        for name, rules in self.model.queues.items():
            self.world.use.queues.resume(name)
            rules.paused = False
        for _ in range(200):
            self.clock.forward(40)
            self.reap_and_succeed()
            if {task.state for task in self.model.tasks.values()} <= {"SUCCEEDED", "DEAD"}:
                break
        else:
            message = "some tasks never end"
            raise AssertionError(message)
        self.tasks_are_what_the_model_says()
        self.a_group_that_has_ended_has_ended()

    def reap_and_succeed(self) -> None:
        self.reap()
        for name in self.model.queues:
            known_before = len(self.deliveries)
            self.dequeue(name, 5, None)
            now = self.now()
            for delivery in self.deliveries[known_before:]:
                report = TaskReport(delivery.task_id, delivery.lease, ReportStatus.SUCCEEDED)
                (result,) = self._reports.report(name, [report])
                assert result.outcome is ReportOutcome.OK
                self.model.succeed(self.model.tasks[delivery.task_id], now, None)

    @property
    def _reports(self) -> Reports:
        return self.world.use.reports


def _by_id(entry: Entry) -> tuple[str, str]:
    return (entry.task_id, str(entry.place))
