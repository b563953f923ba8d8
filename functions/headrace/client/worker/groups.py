"""The group leases of a worker, which its tasks may be under.

A group lease is one over all tasks of a worker, in whatever queues: opened, extended and closed as
one.  It is extended while something is held under it, by one call however much that is.  One that
holds nothing is left to lapse when two thirds of it are over, and another takes its place; ids are
the service's and never come again.

A dequeue whose answer was lost may have put tasks under the group that nobody has, and as long as
the group is extended they do not come back.  So nothing more is put under it, and it is closed as
soon as what is known of it has been settled: then they are given back.
"""

from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from headrace.client.worker.service import Monotonic, WorkerService
from headrace.domain.errors import HeadraceError, LeaseLost, NotFound
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import Lease

KEEPALIVE: Final = 60.0
"""Seconds that a group lasts between two extensions, by default."""

_log = safe_logger("headrace.worker")


class GroupLease:
    """A group lease; times are of the monotonic clock, and never later than the service's."""

    def __init__(self, lease: Lease, keepalive: float, *, sent_at: float) -> None:
        self.id, self.keepalive = lease.id, keepalive
        self.first_end = sent_at + keepalive
        self.lost = self.doubtful = False
        self.next_at = 0.0  # not before, after an extension that did not work
        self.extended(sent_at)

    def extended(self, sent_at: float) -> None:
        """Note that the service granted its length again, for a request of *sent_at*."""
        self.beaten_at, self.lease_ends = sent_at, sent_at + self.keepalive

    @property
    def beat_at(self) -> float:
        """When to extend it: a third of it after that was last done."""
        return self.beaten_at + self.keepalive / 3

    def takes_more(self, now: float, *, busy: bool) -> bool:
        """Whether tasks may be put under it; *busy* when it holds some already.

        The index knows its tasks by its first end.  Past that they would seem lapsed to whoever
        looks there, so a group that is empty by then is used no more.
        """
        ends_soon = now >= self.lease_ends - self.keepalive / 3
        stale = now >= self.first_end and not busy
        return not (self.lost or self.doubtful or ends_soon or stale)


class GroupsInUse(NamedTuple):
    """The group leases that something is held under, and those with reports still to be sent."""

    held: AbstractSet[GroupLease] = frozenset()
    unreported: AbstractSet[GroupLease] = frozenset()


class OpenGroups:
    """The group leases of a worker: one that tasks are put under, and those before it.

    Used by the thread that fetches tasks; the others only look at a group of what is held.
    """

    def __init__(
        self,
        service: WorkerService,
        monotonic: Monotonic,
        *,
        keepalive: float | None,
    ) -> None:
        self._service, self._monotonic = service, monotonic
        self._keepalive = KEEPALIVE if keepalive is None else keepalive
        self._current: GroupLease | None = None
        self._open: list[GroupLease] = []

    def current(self, in_use: GroupsInUse) -> GroupLease:
        """The group to put tasks under, opened if need be; with *in_use* as they are now.

        Raises headrace.domain.errors.
        """
        now, group = self._monotonic(), self._current
        if group is None or not group.takes_more(now, busy=group in in_use.held):
            lease = self._service.open_lease(keepalive=self._keepalive)
            group = self._current = GroupLease(lease, self._keepalive, sent_at=now)
            self._open.append(group)
        if len(self._open) > 1:
            self._see_to_the_old(group, in_use)
        return group

    def close(self) -> None:
        """Close all that are open: what is unsettled under them goes back, no attempt used."""
        for group in self._open:
            self._close(group)
        self._current, self._open = None, []

    def _see_to_the_old(self, current: GroupLease, in_use: GroupsInUse) -> None:
        """Forget the groups that nothing is left of; those in doubt are closed."""
        still_open = []
        for group in self._open:
            if group is current or group in in_use.held or group in in_use.unreported:
                still_open.append(group)
            elif group.doubtful:
                self._close(group)
        self._open = still_open

    def _close(self, group: GroupLease) -> None:
        if group.lost:
            return
        try:
            self._service.close_lease(group.id)
        except (LeaseLost, NotFound):
            _log.debug("Lease %s had ended before it was closed", group.id)
        except HeadraceError as error:
            _log.warning("A lease could not be closed, and ends by itself: %s", error)
