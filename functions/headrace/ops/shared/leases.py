"""Group leases: open, extend and close them, and list the tasks under them.

The index shows the tasks of a group: they are at the group's first end, which never changes.
Closing a group marks it first and then releases its tasks.  A closing is recorded, so that the
reaper releases tasks that the index did not show yet, or that there was no time for.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import structs

from headrace.domain import lease as groups
from headrace.domain import settle
from headrace.domain.change import Done
from headrace.domain.errors import Forbidden, InvalidRequest, LeaseLost, NotFound
from headrace.domain.ids import group_of, new_group_id
from headrace.domain.lease import GroupState, LeaseGroup
from headrace.domain.limits import LEASE_QUEUES
from headrace.domain.patch import Patch
from headrace.domain.retry import Seconds
from headrace.domain.settle import ReleaseReason
from headrace.domain.task import Place, State, Task
from headrace.ops.shared.commits import commit
from headrace.ops.shared.lease_watch import LeaseWatch
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Position, Record, Store, every_record
from headrace.store.call_scope import restricted, visible

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_CLOSING: Final = "closing"
_PAGE: Final = 100
_RECORDS: Final = 250
_LATECOMERS: Final = timedelta(seconds=60)
"""So long after a closing the index, or a dequeue under way, may bring up tasks of the group."""


class Leases(ServicePart):
    """Opens, extends and closes group leases.

    close() releases tasks for *patience* seconds; the reaper releases the rest.
    """

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.patience: float = 15.0
        self.watch = LeaseWatch()

    def open(
        self, name: str | None, *, keepalive: Seconds, patterns: Sequence[str] = ()
    ) -> LeaseGroup:
        """Open a group for *keepalive* seconds.

        The names of a key for some queues are its own: *patterns* are those of the key.
        Raises LeaseLost when *name* is taken: by an open group, or one that ended a day ago or
        less.
        """
        now = self.now()
        own_name = json.dumps([name, *sorted(patterns)]) if name and patterns else name
        group = LeaseGroup.new(
            name, keepalive=keepalive, now=now, group_id=new_group_id(own_name, now)
        )
        if not self.store.patch(groups.open_group(group, now=now)).made:
            message = f"name: a lease named {name} is open, or has ended within the last day"
            raise LeaseLost(message)
        return group

    def extend(self, group_id: str) -> LeaseGroup:
        """Put the end of a group off by its own length, counted from now; one write unit.

        Raises LeaseLost for one that has ended, or never was, and Forbidden where the caller may
        not know of all queues that it was used with; for such a caller it is one read more.
        """
        if restricted():
            _check_queues(find_group(self.store, group_id))
        extended = change_group(self.store, groups.extend(group_id, now=self.now()))
        if extended is None:
            raise _lost(find_group(self.store, group_id))
        self.watch.extended(extended)
        return extended

    def close(self, group_id: str) -> None:
        """Close a group and release its unsettled tasks, due now, without using an attempt.

        The reaper releases the tasks that take longer than *patience* seconds.  Closing a group
        again resumes the release.  Raises NotFound for an unknown group, LeaseLost for one that has
        lapsed, and Forbidden where the caller may not know of all queues that it was used with.
        """
        now = self.now()
        group = find_group(self.store, group_id)
        if group is None:
            raise NotFound("there is no such lease, or it ended long ago")
        _check_queues(group)
        if group.state is GroupState.OPEN:
            self.store.put_record(Record(_CLOSING, group.id, {}), replaces=None)
            closed = change_group(self.store, groups.close(group, now=now))
            group = closed or find_group(self.store, group_id)
        if group is None or group.state is not GroupState.CLOSED:
            raise _lost(group)
        until = now + timedelta(seconds=self.patience)
        for _ in self._release_tasks(group):
            if self.now() >= until:
                return

    def open_for(self, group_id: str, *queues: str) -> LeaseGroup:
        """Return a group that may take tasks of *queues* now, noting that it does.

        Raises LeaseLost unless it is open, InvalidRequest if it has too many queues, and Forbidden
        where the caller may not know of all queues that it was used with.
        """
        now = self.now()
        group = find_group(self.store, group_id)
        _check_queues(group)
        if group is None or not group.holds(now):
            raise _lost(group)
        if len(group.queues.union(queues)) > LEASE_QUEUES:
            message = f"lease_id: a lease takes tasks of at most {LEASE_QUEUES} queues"
            raise InvalidRequest(message)
        for queue in queues:
            if queue in group.queues:
                continue
            noted = change_group(self.store, groups.learn(group_id, queue, now=now))
            if noted is None:
                raise _lost(find_group(self.store, group_id))
            group = noted
        return group

    def held(
        self,
        group_id: str,
        queue: str,
        shard: int,
        *,
        payload: bool = True,
        without: Collection[str] = (),
    ) -> Iterator[Task]:
        """Yield the tasks of a group in one shard of *queue*, of all workers, *without* these ids.

        So a restarted worker finds the tasks that it had leased; nothing for an unknown group.  The
        index may lag: a task leased a moment ago may be missing.
        """
        group = find_group(self.store, group_id)
        if group is None:
            return
        place = Place(queue, State.INFLIGHT, shard)
        for tasks in self._pages(group, place, payload=payload, without=without):
            yield from tasks

    def closings(self) -> Iterator[str]:
        """Yield the ids of the groups whose closing may not be finished."""
        for closing in every_record(self.store, _CLOSING, page=_RECORDS):
            yield closing.name

    def finish_closing(self, group_id: str) -> Iterator[int]:
        """Release the remaining tasks of a closed group; yield the number of each page."""
        now = self.now()
        group = find_group(self.store, group_id)
        if group is not None and group.holds(now):
            return  # who asked ended between noting it and closing, and may ask again
        if group is not None and group.state is GroupState.CLOSED:
            yield from self._release_tasks(group)
            if now < group.expires_at + _LATECOMERS:
                return
        self.store.drop_record(_CLOSING, group_id)

    def _release_tasks(self, group: LeaseGroup) -> Iterator[int]:
        """Release the tasks of *group*; yield the number of each page."""
        for name in sorted(group.queues):
            try:
                queue = self.service.queues.cached(name)
            except NotFound:  # it was deleted with its tasks
                continue
            for place in queue.places(State.INFLIGHT):
                for tasks in self._pages(group, place, payload=False):
                    now = self.now()
                    changes = [
                        settle.release(task, queue, now=now, reason=ReleaseReason.GROUP_CLOSED)
                        for task in tasks
                    ]
                    outcomes = commit(self.service, changes)
                    yield sum(isinstance(outcome, Done) for outcome in outcomes)

    def _pages(
        self, group: LeaseGroup, place: Place, *, payload: bool, without: Collection[str] = ()
    ) -> Iterator[list[Task]]:
        after: Position | None = None
        while True:
            page = self.store.entries(
                place,
                since=group.granted_until,
                until=group.granted_until,
                after=after,
                limit=_PAGE,
            )
            ids = [entry.task_id for entry in page.entries if entry.task_id not in without]
            found = self.store.read(ids, payload=payload) if ids else {}
            yield [
                task
                for task_id in ids
                if (task := found.get(task_id)) is not None
                and (task.queue, task.state) == (place.queue, State.INFLIGHT)
                and group_of(task.lease_id) == group.id
            ]
            after = page.last
            if after is None:
                return


def find_group(store: Store, group_id: str) -> LeaseGroup | None:
    """Return a group as stored, or None."""
    fields = store.item(*groups.group_item(group_id))
    group = LeaseGroup.of(fields) if fields else None
    return group if group is not None and group.id == group_id else None


def change_group(store: Store, patch: Patch) -> LeaseGroup | None:
    """Make a patch of a group and return the group then, or None if the patch was refused."""
    patched = store.patch(patch)
    return LeaseGroup.of(patched.fields) if patched.made and patched.fields else None


def note_cancelled(store: Store, task: Task) -> None:
    """Let the holder of the group that *task* was under know that it was cancelled.

    What crashed before this leaves the holder to learn it when it reports; *task* as it was read.
    """
    group_id = group_of(task.lease_id)
    if group_id is not None:
        store.patch(groups.note_cancelled(group_id, task.id))


@dataclass(frozen=True, slots=True)
class GroupStatuses:
    """What has become of groups: each is looked at once, and marked as lapsed if it is."""

    store: Store
    now: Callable[[], datetime]
    _known: dict[str, LeaseGroup | None] = field(default_factory=dict)

    def of(self, group_id: str) -> LeaseGroup | None:
        """Return the current group; None for an unknown one.

        A group that is open at its end may have been extended since it was read.
        """
        known = self._known.get(group_id)
        if group_id not in self._known or (known is not None and self._past(known)):
            self._known[group_id] = self._judge(group_id)
        return self._known[group_id]

    def _judge(self, group_id: str) -> LeaseGroup | None:
        group = find_group(self.store, group_id)
        if group is None or not self._past(group):
            return group
        lapsed = change_group(self.store, groups.lapse(group, now=self.now()))
        # Else its holder was quicker, or the answer was lost.
        return lapsed or find_group(self.store, group_id)

    def _past(self, group: LeaseGroup) -> bool:
        return group.state is GroupState.OPEN and group.expires_at <= self.now()


def with_present_ends(store: Store, tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Return *tasks* to be shown, those under a group with its present end as their lease's."""

    @cache
    def find(group_id: str) -> LeaseGroup | None:
        return find_group(store, group_id)

    shown = []
    for task in tasks:
        group_id = group_of(task.lease_id)
        group = find(group_id) if group_id is not None else None
        shown.append(
            task if group is None else structs.replace(task, lease_expires_at=group.expires_at)
        )
    return tuple(shown)


def _check_queues(group: LeaseGroup | None) -> None:
    """Raise Forbidden unless the caller may know of every queue that *group* was used with."""
    if group is not None and not all(map(visible, group.queues)):
        raise Forbidden("this key is not for all queues of this lease")


def _lost(group: LeaseGroup | None) -> LeaseLost:
    if group is None:
        return LeaseLost("there is no such lease, or it ended long ago")
    if group.state is GroupState.CLOSED:
        return LeaseLost("the lease was closed; open a new one")
    return LeaseLost("the lease has lapsed and lost its tasks; open a new one")
