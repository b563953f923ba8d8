"""Group leases are opened, extended, closed, and left to lapse, compared with the model."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from headrace.domain.errors import LeaseLost
from tests.property.calls import Say, any_of_them, queue_names
from tests.property.model import Group
from tests.property.workers import Workers


class Groups(Workers):
    """Workers put tasks under leases that they share."""

    @rule(keepalive=st.sampled_from([2, 9, 30]), queue=queue_names)
    def open_group(self, keepalive: float, queue: str) -> None:
        """Open a group and put it to use, as one does."""
        now = self.now()

        opened = self.world.use.leases.open(None, keepalive=keepalive)

        end = now + timedelta(seconds=keepalive)
        assert opened.expires_at == end
        group = Group(opened.id, keepalive, now, granted=end, end=end)
        self.model.groups[opened.id] = group
        self.now()
        self.taken(queue, 3, None, group)

    @precondition(lambda self: self._used())
    @rule(which=any_of_them, too_long=st.sampled_from([-0.5, 0, 0.5]), extended=st.booleans())
    def near_the_end(self, which: int, too_long: float, *, extended: bool) -> None:
        """Let a group's end come near, or pass; its holder may think of it at the last moment."""
        group = self._group(which)
        left = (group.end - self.clock()).total_seconds() + too_long
        if left > 0:
            self.clock.forward(left)
        if extended:
            self.extend(group)

    @precondition(lambda self: self.model.groups)
    @rule(which=any_of_them)
    def extend_group(self, which: int) -> None:
        self.extend(self._group(which))

    def extend(self, group: Group) -> None:
        now = self.now()
        if not group.holds(now):
            with pytest.raises(LeaseLost):
                self.world.use.leases.extend(group.id)
            return

        extended = self.world.use.leases.extend(group.id)

        group.end = now + timedelta(seconds=group.keepalive)
        assert extended.expires_at == group.end
        assert extended.cancelled == group.cancelled
        for task in self.model.under(group)[:1]:
            assert self.world.use.tasks.get(task.id).lease_expires_at == group.end

    @precondition(lambda self: self.model.groups)
    @rule(which=any_of_them)
    def close_group(self, which: int) -> None:
        now, group = self.now(), self._group(which)
        if group.state == "LAPSED":
            with pytest.raises(LeaseLost):
                self.world.use.leases.close(group.id)
            return

        self.world.use.leases.close(group.id)

        if group.state == "OPEN":
            group.state, group.end = "CLOSED", min(group.end, now)
        for task in self.model.under(group):
            self.model.release_from_closed_group(task, now)

    @precondition(lambda self: self.model.groups)
    @rule(which=any_of_them, queue=queue_names, count=st.integers(1, 5))
    def dequeue_under(self, which: int, queue: str, count: int) -> None:
        group = self._group(which)
        if group.holds(self.now()):
            self.taken(queue, count, None, group)
            return
        with pytest.raises(LeaseLost):
            self.world.use.deliveries.dequeue(queue, lease_id=group.id)

    @precondition(lambda self: self._used())
    @rule(which=any_of_them, status=st.sampled_from(["RELEASED", "RELEASED", "MOVED", "FAILED"]))
    def settle_and_take_again(self, which: int, status: str) -> None:
        """A task comes back under the group it was settled under; then the report is repeated."""
        group = self._used()[which % len(self._used())]
        task = self.model.under(group)[0]
        place = max(n for n, of in enumerate(self.deliveries) if of.task_id == task.id)
        again = Say(
            live=False, delivery=place, lease="held", status=status, delay=None, keepalive=None,
            text=None, retryable=True, target=task.queue, elsewhere=False,
        )  # fmt: skip
        self.report([again])
        if group.holds(self.now()):
            self.taken(task.queue, 5, None, group)
        self.report([again])

    @precondition(lambda self: self._used())
    @rule(which=any_of_them, status=st.sampled_from(["RELEASED", "SUCCEEDED", "INFLIGHT"]))
    def settle_take_alone_and_take_again(self, which: int, status: str) -> None:
        """In between somebody else has it, without the group; then the first report is late."""
        group = self._used()[which % len(self._used())]
        task = self.model.under(group)[0]
        first = max(n for n, of in enumerate(self.deliveries) if of.task_id == task.id)
        back = Say(
            live=False, delivery=first, lease="held", status="RELEASED", delay=None,
            keepalive=None, text=None, retryable=True, target=task.queue, elsewhere=False,
        )  # fmt: skip
        self.report([back])
        self.taken(task.queue, 5, None, None)
        if task.state == "INFLIGHT":
            again = max(n for n, of in enumerate(self.deliveries) if of.task_id == task.id)
            self.report([replace(back, delivery=again)])
        if group.holds(self.now()):
            self.taken(task.queue, 5, None, group)
        self.report([replace(back, status=status)])

    @precondition(lambda self: self.model.groups)
    @rule(which=any_of_them, queue=queue_names)
    def recover(self, which: int, queue: str) -> None:
        """Whoever comes again finds what was leased before, and only that."""
        group, shards = self._group(which), self.model.queues[queue].shards_in_use

        found = [
            task.id
            for shard in range(shards)
            for task in self.world.use.leases.held(group.id, queue, shard)
        ]

        assert sorted(found) == sorted(
            task.id for task in self.model.under(group) if task.queue == queue
        )

    @invariant()
    def a_group_that_has_ended_has_ended(self) -> None:
        for group in self.model.groups.values():
            stored = self.world.store.group(group.id)
            assert stored is not None
            assert (stored.state, stored.expires_at) == (group.state, group.end)

    def _group(self, which: int) -> Group:
        """Return a group, mostly one that has tasks."""
        used, every = self._used(), list(self.model.groups.values())
        some = used if used and which % 4 else every
        return some[which % len(some)]

    def _used(self) -> list[Group]:
        return [group for group in self.model.groups.values() if self.model.under(group)]
