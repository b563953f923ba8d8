"""Requests with an ``Idempotency-Key``: the first one runs, and its repeats get its answer.

A marker is written before the first request runs, on condition that no marker exists, so one of
several parallel requests runs.  The marker has the time by which the request is over; if its
process dies, a repeat runs after that time.  The answer then replaces the marker.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from headrace.domain.errors import Unavailable
from headrace.domain.repeat import (
    FIRST,
    KEPT,
    First,
    KeyedRequest,
    RecordedAnswer,
    still_running,
)
from headrace.domain.times import micros_of
from headrace.ops.shared.service_part import ServicePart
from headrace.safe_logging import safe_logger
from headrace.store.base import Record
from headrace.store.call_scope import Draws

_log: Final = safe_logger(__name__)


@dataclass(frozen=True, slots=True)
class RepeatTurn:
    """The right to run a request; it ends with an answer, or without one."""

    request: KeyedRequest
    first: First
    version: int

    def draws(self, secret: bytes) -> Draws:
        """Return the ids for the new tasks of the request; a repeat gets the same ids.

        So a repeat finds the tasks that a process made before it died.
        """
        asked = self.request
        began = self.first.began
        seed = f"{asked.caller} {asked.key} {asked.fingerprint} {micros_of(began)}"
        return Draws(secret, seed, began)


class Repeats(ServicePart):
    """Keeps the markers and answers of requests."""

    def begin(self, request: KeyedRequest, *, within: timedelta) -> RepeatTurn | RecordedAnswer:
        """Return the right to run *request* for at most *within*; or its answer.

        Raises IdempotencyConflict when the key was sent with another request, and Unavailable while
        the first one still runs.
        """
        now = self.now()
        first = First(request.fingerprint, now, now + within)
        turn = RepeatTurn(request, first, 1)
        if self._write(turn, first, replaces=None):
            return turn
        record = self.store.record(request.kind, FIRST)
        if record is not None:
            before = self._read(record)
            answer = before.answer_to(request, now=now)
            if answer is not None:
                return answer
            first = before.next_try(request, now=now, until=now + within)
            turn = RepeatTurn(request, first, record.version + 1)
            if self._write(turn, first, replaces=record.version):
                return turn
        raise still_running(now, now + within, now=now)  # somebody else was quicker

    def finish(self, turn: RepeatTurn, answer: RecordedAnswer) -> None:
        """Keep *answer* for repeats of the request.

        If the table is not available, the request has still taken effect: the caller gets the
        answer, and a repeat runs again.
        """
        done = replace(turn.first, answer=answer)
        try:
            kind, until = turn.request.kind, done.at + KEPT
            for place, part in enumerate(done.parts()):
                name = _part_name(turn.version + 1, place)
                self.store.renew_record(Record(kind, name, {"text": part}, 1, until))
            self._write(replace(turn, version=turn.version + 1), done, replaces=turn.version)
        except Unavailable as error:
            _log.warning("an answer could not be kept for repeats: %s", error)

    def give_up(self, turn: RepeatTurn) -> None:
        """Let a repeat run again after the request failed."""
        failed = replace(turn.first, failed=True)
        try:
            self._write(replace(turn, version=turn.version + 1), failed, replaces=turn.version)
        except Unavailable as error:  # then its marker lapses
            _log.warning("a failure could not be noted for repeats: %s", error)

    def _write(self, turn: RepeatTurn, first: First, *, replaces: int | None) -> bool:
        kind, until = turn.request.kind, first.at + KEPT
        record = Record(kind, FIRST, first.body(), turn.version, until)
        return self.store.put_record(record, replaces=replaces)

    def _read(self, record: Record) -> First:
        """Return the content of *record*, with the parts of a large answer."""
        number = record.body.get("parts", 0)
        parts: list[str] = []
        while len(parts) < number:
            after = _part_name(record.version, len(parts) - 1) if parts else ""
            found, _ = self.store.records(
                record.kind, prefix=f"{record.version}.", after=after, limit=number - len(parts)
            )
            if not found:
                raise Unavailable("the first answer under this Idempotency-Key is being forgotten")
            parts += [str(part.body["text"]) for part in found]
        return First.of(record.body, parts)


def _part_name(version: int, place: int) -> str:
    """Return the name of one part; the parts of each version are of another answer."""
    return f"{version}.{place:03d}"
