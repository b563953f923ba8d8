"""The calls of operators, and what time brings, compared with the model."""

from collections import Counter
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from headrace.domain.errors import Finished, Inflight, NotFound
from headrace.domain.operate import BulkAction
from headrace.domain.task import SHOWN_STATES, State
from tests.property.calls import any_of_them, queue_names
from tests.property.harness import ServiceHarness
from tests.property.model import copied


class Operators(ServiceHarness):
    """Time passes, the reaper runs, and operators have their way with queues and tasks."""

    @rule(seconds=st.sampled_from([0.25, 1, 1, 3, 5.5, 12, 31]))
    def pass_time(self, seconds: float) -> None:
        self.clock.forward(seconds)

    @rule()
    def reap(self) -> None:
        now = self.now()

        reaped = self.world.use.reaping.run()

        ends: Counter[str] = Counter()
        for name in self.model.queues:
            overdue = [task for task in self.model.of(name, "INFLIGHT") if task.at <= now]
            ends["healthy"] += sum(not self.model.lapsed(task, now) for task in overdue)
            for task in [task for task in overdue if self.model.lapsed(task, now)]:
                self.model.reclaim(task, now)
                ends["retried" if task.state == "ENQUEUED" else "dead_lettered"] += 1
            for task in [task for task in self.model.of(name, "ENQUEUED") if task.expired(now)]:
                self.model.expire(task, now)
                ends["expired"] += 1
        counted = {name: getattr(reaped, name) for name in ("healthy", "retried", "expired")}
        assert counted == {name: ends[name] for name in counted}
        assert (reaped.purged, reaped.released) == (0, 0)

    @rule(queue=queue_names, states=st.sets(st.sampled_from(SHOWN_STATES), min_size=1, max_size=2))
    def purge(self, queue: str, states: set[State]) -> None:
        self.now()

        purged = self.world.use.queues.purge(queue, tuple(sorted(states)))

        gone = [task for state in states for task in self.model.of(queue, state)]
        assert purged.finished
        assert purged.deleted == len(gone)
        for task in gone:
            self.model.remove(task, "purged")

    @precondition(lambda self: self.model.tasks)
    @rule(which=any_of_them, waiting_only=st.booleans())
    def delete(self, which: int, *, waiting_only: bool) -> None:
        now = self.now()
        task = list(self.model.tasks.values())[which % len(self.model.tasks)]
        before = copied(task)

        try:
            self.world.use.tasks.delete(task.id, if_not_inflight=waiting_only)
        except NotFound:
            assert before.hidden(now)
        except Inflight:
            assert waiting_only
            assert before.state == "INFLIGHT"
        else:
            assert not before.hidden(now)
            assert not (waiting_only and before.state == "INFLIGHT")
            self.model.remove(task, "deleted")

    @precondition(lambda self: self.model.tasks)
    @rule(which=any_of_them, in_bulk=st.booleans())
    def cancel(self, which: int, *, in_bulk: bool) -> None:
        now = self.now()
        task = list(self.model.tasks.values())[which % len(self.model.tasks)]
        before = copied(task)
        unfinished = before.state in ("ENQUEUED", "INFLIGHT") and not before.expired(now)
        if in_bulk:
            answer = self.world.use.bulk.by_ids(task.queue, BulkAction.CANCEL, [task.id])
            assert answer.changed == unfinished
        else:
            try:
                self.world.use.cancelling.cancel(task.id)
            except NotFound:
                assert before.hidden(now)
            except Finished:
                assert not unfinished
                assert before.reason != "cancelled"
            else:
                assert unfinished or before.reason == "cancelled"
        if unfinished:
            self.model.cancel(task, now)

    @rule(queue=queue_names, until=st.sampled_from([None, 5]))
    def pause(self, queue: str, until: int | None) -> None:
        now = self.now()
        rules = self.model.queues[queue]
        self.world.use.queues.pause(queue, resume_in_seconds=until)
        rules.paused = True
        rules.resume_at = None if until is None else now + timedelta(seconds=until)

    @rule(queue=queue_names)
    def resume(self, queue: str) -> None:
        self.now()
        self.world.use.queues.resume(queue)
        self.model.queues[queue].paused = False

    @rule(shards=st.integers(1, 3))
    def reshard(self, shards: int) -> None:
        now = self.now()
        rules = self.model.queues["wide"]
        rules.paused = False  # as the new settings say
        rules.shards, rules.shards_in_use = shards, max(rules.shards_in_use, shards)
        self.world.use.queues.replace("wide", rules.settings())
        assert not rules.holds_back(now)
