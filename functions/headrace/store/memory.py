"""A store in memory: the protocol in its plainest form, for tests and the test kit.

One lock makes each call atomic.  Nothing is kept on disk and nothing costs units.

Long, because it has a method for every promise of a store, each of a few lines.
"""

import threading
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from headrace.domain.change import Change, Entry, KeyLock
from headrace.domain.fairness import NOBODY, Places, PlaceTaking, TurnTaking
from headrace.domain.ids import group_key
from headrace.domain.indexing import Match
from headrace.domain.instants import MICROSECOND
from headrace.domain.lease import GroupChange, LeaseGroup
from headrace.domain.rate import Bucket, Draw
from headrace.domain.slots import GroupLine, SlotTaking
from headrace.domain.task import Place, Task
from headrace.store.base import (
    CountPage,
    Done,
    EntryPage,
    Noting,
    NotingRefused,
    Outcome,
    Position,
    Record,
    Refused,
    refused,
)

_Key = tuple[datetime, str]  # a Position, compared many times faster


class MemoryStore:
    """Implements ``headrace.store.base.Store`` over dictionaries."""

    arrivals = None
    ends = None
    counted_at_once = 5_000  # about as many entries as DynamoDB reads for one request

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[str, Task] = {}
        self._index: defaultdict[Place, list[_Key]] = defaultdict(list)
        self._records: defaultdict[str, dict[str, Record]] = defaultdict(dict)
        self._marks: dict[tuple[str, str], str] = {}
        self._groups: dict[str, LeaseGroup] = {}
        self._buckets: dict[str, Bucket] = {}
        self._pools: dict[tuple[str, int], frozenset[str]] = {}
        self._lines: dict[tuple[str, str], int] = {}
        self._tails: dict[tuple[str, str], tuple[str, Places]] = {}
        self._group_slots: dict[tuple[str, str], dict[int, str]] = {}
        self._delivered: dict[str, int] = {}
        self._matches: set[Match] = set()

    def commit(
        self,
        changes: Sequence[Change],
        *,
        partly: bool = False,  # noqa: ARG002  all or none fails here
        noting: Noting | None = None,
    ) -> list[Outcome]:
        if noting is not None:  # as two calls, as it is on DynamoDB
            if not self.put_record(noting.record, replaces=noting.replaces, lazy=True):
                raise NotingRefused
            return self.commit(changes)
        return [self._commit(change) for change in changes]

    def _commit(self, change: Change) -> Outcome:
        with self._lock:
            before = self._tasks.get(change.task_id)
            blocked = tuple(place for place, also in enumerate(change.also) if not self._open(also))
            if not change.allowed(before):
                return refused(change, before, blocked)
            if blocked:
                return Refused(before, blocked)
            after = change.apply(before)
            self._put(before, after or change.remains(before))
            for also in change.also:
                self._write(also)
        last = after or before
        return Refused(None) if last is None else Done(last)

    def _open(self, also: KeyLock | Change) -> bool:
        if isinstance(also, KeyLock):
            return self._marks.get((also.kind, also.name)) == also.expects
        return also.allowed(self._tasks.get(also.task_id)) and all(map(self._open, also.also))

    def _write(self, also: KeyLock | Change) -> None:
        if isinstance(also, Change):
            before = self._tasks.get(also.task_id)
            self._put(before, also.apply(before))
            for inner in also.also:
                self._write(inner)
        elif also.value is None:
            self._marks.pop((also.kind, also.name), None)
        else:
            self._marks[also.kind, also.name] = also.value

    def _put(self, before: Task | None, after: Task | None) -> None:
        if before is not None:
            del self._tasks[before.id]
        if before is not None and before.spent is None:
            index = self._index[before.place]
            del index[bisect_left(index, (before.scheduled_at, before.id))]
        if after is not None:
            self._tasks[after.id] = after
        if after is not None and after.spent is None:
            insort(self._index[after.place], (after.scheduled_at, after.id))

    def read(
        self,
        task_ids: Iterable[str],
        *,
        payload: bool = True,
        consistent: bool = True,  # noqa: ARG002  always is
    ) -> dict[str, Task]:
        found = {id_: task for id_, task in self._found(task_ids).items() if not task.remains}
        if payload:
            return found
        return {id_: replace(task, payload=None) for id_, task in found.items()}

    def spent(self, task_ids: Iterable[str]) -> dict[str, Task]:
        return {id_: task for id_, task in self._found(task_ids).items() if task.remains}

    def _found(self, task_ids: Iterable[str]) -> dict[str, Task]:
        with self._lock:
            return {id_: self._tasks[id_] for id_ in task_ids if id_ in self._tasks}

    def ids(self, prefix: str, *, limit: int) -> tuple[Sequence[str], bool] | None:
        with self._lock:
            found = sorted(task_id for task_id in self._tasks if task_id.startswith(prefix))
        return found[:limit], len(found) > limit

    def entries(
        self,
        place: Place,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        after: Position | None = None,
        descending: bool = False,
        limit: int,
    ) -> EntryPage:
        with self._lock:
            index = self._index[place]
            first, end = 0, len(index)
            if since is not None:
                first = bisect_left(index, (since,))
            if until is not None:
                end = bisect_left(index, (until + MICROSECOND,))
            if after is not None and descending:
                end = min(end, bisect_left(index, (after.scheduled_at, after.task_id)))
            elif after is not None:
                first = max(first, bisect_right(index, (after.scheduled_at, after.task_id)))
            more = end - first > limit
            if descending:
                keys = index[max(first, end - limit) : end][::-1]
            else:
                keys = index[first : min(end, first + limit)]
            entries = tuple(self._entry(task_id) for _, task_id in keys)
        return EntryPage(entries, Position(*keys[-1]) if more else None)

    def _entry(self, task_id: str) -> Entry:
        task = self._tasks[task_id]
        return Entry(
            task.id,
            task.place,
            task.scheduled_at,
            task.expires_at,
            task.retained_until,
            task.due_at,
            task.group_key,
            knows_group=True,
        )

    def count(
        self,
        place: Place,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        after: Position | None = None,
        now: datetime | None,
    ) -> CountPage:
        page = self.entries(
            place, since=since, until=until, after=after, limit=self.counted_at_once
        )
        number = sum(now is None or not entry.hidden(now) for entry in page.entries)
        return CountPage(number, page.last)

    def key_lock(self, kind: str, name: str) -> str | None:
        with self._lock:
            return self._marks.get((kind, name))

    def key_locks(self, kind: str) -> dict[str, str]:
        with self._lock:
            return {name: value for (of, name), value in self._marks.items() if of == kind}

    def set_key_lock(self, lock: KeyLock) -> bool:
        with self._lock:
            if not self._open(lock):
                return False
            self._write(lock)
            return True

    def record(self, kind: str, name: str) -> Record | None:
        with self._lock:
            return self._records[kind].get(name)

    def records(
        self,
        kind: str,
        *,
        prefix: str = "",
        after: str = "",
        limit: int,
        consistent: bool = True,  # noqa: ARG002  always is
    ) -> tuple[Sequence[Record], bool]:
        with self._lock:
            found = sorted(
                (name, record)
                for name, record in self._records[kind].items()
                if name.startswith(prefix) and name > after
            )
        return tuple(record for _, record in found[:limit]), len(found) > limit

    def put_record(self, record: Record, *, replaces: int | None, lazy: bool = False) -> bool:  # noqa: ARG002  nothing outlasts the process
        return self.put_records([(record, replaces)])

    def put_records(
        self, writes: Sequence[tuple[Record, int | None]], *, tasks: Sequence[Change] = ()
    ) -> bool:
        with self._lock:
            for record, replaces in writes:
                stored = self._records[record.kind].get(record.name)
                if (stored.version if stored else None) != replaces:
                    return False
            if not all(map(self._open, tasks)):
                return False
            for new in tasks:
                self._write(new)
            for record, _ in writes:
                self._records[record.kind][record.name] = record
            return True

    def renew_record(self, record: Record) -> Record:
        with self._lock:
            of_kind = self._records[record.kind]
            stored = of_kind.get(record.name)
            kept = replace(record, note=stored.note if stored else None)
            of_kind[record.name] = kept
            return kept

    def leave_note(self, kind: str, name: str, note: str, *, expects: str | None) -> bool:
        with self._lock:
            stored = self._records[kind].get(name)
            if stored is None or stored.note != expects:
                return False
            self._records[kind][name] = replace(stored, note=note)
            return True

    def drop_record(self, kind: str, name: str, *, version: int | None = None) -> bool:
        with self._lock:
            stored = self._records[kind].get(name)
            if stored is None or version not in (None, stored.version):
                return False
            del self._records[kind][name]
            return True

    def note_matches(self, there: Collection[Match], gone: Collection[Match]) -> None:
        away = {(one.queue, one.task_id) for one in gone}
        with self._lock:
            self._matches = {
                one for one in self._matches if (one.queue, one.task_id) not in away
            } | set(there)

    def matches(
        self, queue: str, term: str, *, after: str = "", descending: bool = False, limit: int
    ) -> tuple[Sequence[str], bool]:
        with self._lock:
            ids = sorted(
                (one.task_id for one in self._matches if (one.queue, one.term) == (queue, term)),
                reverse=descending,
            )
        behind = [one for one in ids if not after or (one < after if descending else one > after)]
        return behind[:limit], len(behind) > limit

    def drop_matches(self, queue: str, field: str, *, limit: int) -> bool:
        with self._lock:
            found = [
                one for one in self._matches if one.queue == queue and one.term.startswith(field)
            ]
            self._matches -= set(found[:limit])
        return len(found) > limit

    def reserve(
        self, queue: str, pool: int, texts: Collection[str], *, room: int
    ) -> tuple[frozenset[str], bool]:
        with self._lock:
            there = self._pools.get((queue, pool), frozenset())
            if not there.issuperset(texts) and len(there) + len(texts) > room:
                return there, False
            self._pools[queue, pool] = there | set(texts)
            return self._pools[queue, pool], True

    def free(self, queue: str, pool: int, texts: Collection[str]) -> frozenset[str]:
        with self._lock:
            self._pools[queue, pool] = self._pools.get((queue, pool), frozenset()) - set(texts)
            return self._pools[queue, pool]

    def pools(self, queue: str, first: int, last: int) -> dict[int, frozenset[str]]:
        with self._lock:
            found = {pool: self._pools.get((queue, pool)) for pool in range(first, last + 1)}
        return {pool: held for pool, held in found.items() if held}

    def drop_pools(self, queue: str) -> None:
        with self._lock:
            self._pools = {key: held for key, held in self._pools.items() if key[0] != queue}

    def bucket(self, queue: str) -> Bucket | None:
        with self._lock:
            return self._buckets.get(queue)

    def draw(
        self,
        queue: str,
        draw: Draw,
        *,
        seen: Bucket | None,  # noqa: ARG002  what is there is at hand
    ) -> tuple[Bucket | None, bool]:
        with self._lock:
            there = self._buckets.get(queue)
            if not draw.allowed(there):
                return there, False
            self._buckets[queue] = draw.apply(there)
            return self._buckets[queue], True

    def replace_bucket(self, queue: str, bucket: Bucket, *, expects: Bucket | None) -> bool:
        with self._lock:
            if self._buckets.get(queue) != expects:
                return False
            self._buckets[queue] = bucket
            return True

    def drop_bucket(self, queue: str) -> None:
        with self._lock:
            self._buckets.pop(queue, None)

    def take_turns(self, queue: str, take: TurnTaking) -> int:
        with self._lock:
            end = take.end(self._lines.get((queue, take.name)))
            self._lines[queue, take.name] = end
            return end

    def take_places(self, queue: str, take: PlaceTaking) -> Places:
        key = (queue, take.name)
        with self._lock:
            tail, there = self._tails.get(key, (NOBODY, Places(0, 0, NOBODY)))
            if tail == take.last:
                return there
            end = take.end(self._lines.get(key))
            taken = Places(end, there.seq + take.count, tail)
            self._lines[key], self._tails[key] = end, (take.last, taken)
            return taken

    def line(self, queue: str, name: str) -> int | None:
        with self._lock:
            return self._lines.get((queue, name))

    def lines(self, queue: str, names: Collection[str]) -> Mapping[str, GroupLine]:
        with self._lock:
            found = [(name, (queue, name)) for name in names]
            return {
                name: GroupLine(self._lines.get(key, 0), dict(self._group_slots.get(key, {})))
                for name, key in found
                if key in self._lines or key in self._group_slots
            }

    def take_slot(self, queue: str, take: SlotTaking) -> bool:
        with self._lock:
            slots = self._group_slots.setdefault((queue, take.name), {})
            if slots.get(take.number) == take.expects:
                slots[take.number] = take.stay
            return slots.get(take.number) == take.stay

    def delivered_turn(self, queue: str) -> int:
        with self._lock:
            return self._delivered.get(queue, 0)

    def note_delivered(self, queue: str, turn: int, *, expires_at: datetime) -> None:  # noqa: ARG002  nothing is forgotten here
        with self._lock:
            self._delivered[queue] = max(turn, self._delivered.get(queue, 0))

    def open_group(self, group: LeaseGroup, *, now: datetime) -> bool:
        with self._lock:
            there = self._groups.get(group.key)
            if there is not None and there.kept_until > now:
                return False
            self._groups[group.key] = group
            return True

    def group(self, group_id: str) -> LeaseGroup | None:
        with self._lock:
            there = self._groups.get(group_key(group_id))
        return there if there is not None and there.id == group_id else None

    def change_group(self, change: GroupChange) -> LeaseGroup | None:
        key = group_key(change.id)
        with self._lock:
            there = self._groups.get(key)
            if there is None or not change.allowed(there):
                return None
            self._groups[key] = change.apply(there)
            return self._groups[key]
