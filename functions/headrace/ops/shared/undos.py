"""What can be undone, written down before the first task is deleted."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from headrace.domain.errors import InvalidRequest
from headrace.domain.operate import Undo
from headrace.domain.retry import Seconds
from headrace.ops.shared.service_part import ServicePart
from headrace.store.call_scope import draw_undo_id
from headrace.store.records import undos as undo_records

if TYPE_CHECKING:
    from headrace.runtime.service import Service


class Undos(ServicePart):
    """Begins undos and finds them again."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.new_id: Callable[[datetime], str] = draw_undo_id

    def begin(
        self, queue: str, seconds: Seconds, *, ids: Sequence[str] | None = None
    ) -> Undo | None:
        """Return an undo for *seconds* of what is about to be deleted in *queue*; 0: None.

        *ids* are the tasks where they are known: the index need not show those.
        """
        if not seconds:
            return None
        now = self.now()
        undo = Undo(self.new_id(now), queue, now, now + timedelta(seconds=seconds))
        named = None if ids is None else tuple(dict.fromkeys(ids))
        while not self.store.put_record(undo_records.to_record(undo, named), replaces=None):
            found = self.find(undo.id)
            if found is not None and found[0].queue == queue:
                return found[0]  # begun by this very request, whose process died: it goes on
            undo = replace(undo, id=self.new_id(now))
        return undo

    def join(self, queue: str, undo_id: str) -> Undo:
        """Return an undo of *queue* for what is about to be deleted besides, of whatever ids.

        Raises InvalidRequest naming ``undo_id`` for one that is not there, over or of another
        queue.
        """
        record = self.store.record(undo_records.KIND, undo_id)
        undo, ids = (None, None) if record is None else undo_records.from_record(record)
        if record is None or undo is None or undo.queue != queue or undo.until <= self.now():
            raise InvalidRequest.of("undo_id", "is no undo of this queue, or one that is over")
        if ids is not None:  # what it brings back is found by the index from now on
            wider = undo_records.to_record(undo, None)
            version = record.version + 1
            self.store.put_record(replace(wider, version=version), replaces=record.version)
        return undo

    def find(self, undo_id: str) -> tuple[Undo, tuple[str, ...] | None] | None:
        """Return an undo that is not over, and the ids of its tasks where they are known."""
        record = self.store.record(undo_records.KIND, undo_id)
        if record is None:
            return None
        undo, ids = undo_records.from_record(record)
        return (undo, ids) if undo.until > self.now() else None

    def known(self, undo_id: str | None) -> Undo | None:
        """Return an undo that is not over."""
        found = self.find(undo_id) if undo_id is not None else None
        return None if found is None else found[0]
