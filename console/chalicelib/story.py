"""The life of a task to scale: waits, runs and backoffs.

A task keeps its last errors, the queues that it left, and its last times.  The beginning of an
attempt that ended in a move is unknown, and is drawn as unknown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from headrace.domain.task import ErrorKind, State, Status, Task, TaskError

from . import formatting

WIDTH: Final = 720
_RUN: Final = "run"
_KEYS: Final = {
    "wait": "waits",
    "backoff": "backoff or not due",
    "unknown": "waits and runs, start unknown",
    "run-failed": "runs and fails",
    "run-succeeded": "runs and succeeds",
    "run-inflight": "runs",
}
_LEAST: Final = 3.0  # pixels of a run, however short
_LAST_LINE: Final = 200  # letters of it that are shown


class Ended(StrEnum):
    """The end of an attempt, or that it still runs."""

    FAILED = "failed"
    LAPSED = "lease expired"
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    RUNNING = "running for"

    @property
    def status(self) -> Status:
        """The status whose sign the attempt has."""
        return {Ended.SUCCEEDED: Status.SUCCEEDED, Ended.RUNNING: Status.INFLIGHT}.get(
            self, Status.DEAD
        )


@dataclass(frozen=True, slots=True)
class StoryAttempt:
    """One attempt; ``waited`` and ``run`` are seconds, None where they are not known."""

    number: int
    queue: str
    started_at: datetime | None
    ended_at: datetime | None
    ended: Ended
    worker: str
    error: TaskError | None = None
    waited: float | None = None
    run: float | None = None

    @property
    def last_line(self) -> str:
        """The last line of the traceback; empty for a detail of one line."""
        detail = self.error.detail if self.error is not None else ""
        lines = [line.strip() for line in detail.splitlines() if line.strip()]
        return lines[-1][:_LAST_LINE] if lines[1:] else ""


@dataclass(frozen=True, slots=True)
class StoryEvent:
    """Another event: a move from *queue* to another, a restart, or a release."""

    what: str
    at: datetime | None
    queue: str
    to: str = ""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of the strip: a wait, a backoff, a run with its end, or an unknown time."""

    kind: str
    x: float
    width: float
    words: str

    @property
    def y(self) -> int:
        """The upper edge: a run is as high as the strip, other pieces lie in its middle."""
        return 0 if self.kind.startswith(_RUN) else 8

    @property
    def height(self) -> int:
        """The height."""
        return 24 - 2 * self.y


@dataclass(frozen=True, slots=True)
class Strip:
    """The life of a task to scale; ``words`` says the same in words, ``length`` how long it is."""

    stretches: tuple[Stretch, ...]
    first: datetime
    last: datetime
    length: float
    words: str
    kinds: tuple[str, ...]
    width: int = WIDTH
    height: int = 24

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """Each kind of piece in words."""
        return tuple((kind, _KEYS[kind]) for kind in self.kinds)


def queue_at(task: Task, at: datetime) -> str:
    """Return the queue of *task* at the time *at*, by its trail."""
    return next((hop.queue for hop in task.trail if at <= hop.at), task.queue)


def events(task: Task) -> tuple[StoryAttempt | StoryEvent, ...]:
    """Return the events of *task*, oldest first."""
    found = sorted(_known(task), key=lambda event: _when(event, task))
    told: list[StoryAttempt | StoryEvent] = []
    since, before = task.created_at, 0
    for event in found:
        if isinstance(event, StoryAttempt):
            if event.number <= before and not _parted(told):
                told.append(StoryEvent("restarted", None, event.queue))
            before = event.number
            told.append(_measured(event, since))
            since = event.ended_at or since
        else:
            told.append(event)
            since = event.at or since
            before = 0 if event.what != "released" else before
    return tuple(told)


def _parted(told: Sequence[StoryAttempt | StoryEvent]) -> bool:
    """Return whether the last event restarts the count of attempts."""
    return bool(told) and isinstance(told[-1], StoryEvent)


def _when(event: StoryAttempt | StoryEvent, task: Task) -> datetime:
    if isinstance(event, StoryEvent):
        return event.at or task.created_at
    return event.ended_at or event.started_at or task.created_at


def _measured(one: StoryAttempt, since: datetime) -> StoryAttempt:
    """Return an attempt with the seconds of its wait and of its run."""
    began, ended = one.started_at, one.ended_at
    return StoryAttempt(
        one.number, one.queue, began, ended, one.ended, one.worker, one.error,
        None if began is None else max(0.0, (began - since).total_seconds()),
        None if began is None or ended is None else max(0.0, (ended - began).total_seconds()),
    )  # fmt: skip


def _known(task: Task) -> Iterator[StoryAttempt | StoryEvent]:
    for error in task.errors:
        ended = Ended.LAPSED if error.kind is ErrorKind.LEASE_EXPIRED else Ended.FAILED
        began = error.started_at
        last = error is task.errors[-1] and task.state is not State.SUCCEEDED
        if began is None and last and task.started_at and task.started_at <= error.at:
            began = task.started_at
        queue = queue_at(task, error.at)
        yield StoryAttempt(error.attempt, queue, began, error.at, ended, error.worker or "", error)
    if (last_one := _last(task)) is not None:
        yield last_one
    hops = [*task.trail]
    for place, hop in enumerate(hops):
        to = hops[place + 1].queue if place + 1 < len(hops) else task.queue
        yield StoryEvent("moved", hop.at, hop.queue, to)
    moments = {hop.at for hop in hops} | {error.at for error in task.errors}
    again = task.enqueued_at
    if again > task.created_at and again not in moments:
        yield StoryEvent("restarted", again, task.queue)
    back = task.returned_at
    if back is not None and back not in moments and back != again:
        yield StoryEvent("released", back, task.queue)


def _last(task: Task) -> StoryAttempt | None:
    """Return the attempt without an error: running, succeeded or cancelled."""
    began, worker = task.started_at, task.worker or ""
    if task.state is State.SUCCEEDED and task.finished_at:
        ended, at = Ended.SUCCEEDED, task.finished_at
    elif task.state is State.INFLIGHT and began:
        return StoryAttempt(task.attempts, task.queue, began, None, Ended.RUNNING, worker)
    elif task.cancelled and task.finished_at and _never_came_back(task):
        ended, at = Ended.CANCELLED, task.finished_at
    else:
        return None
    return StoryAttempt(task.attempts, task.queue, began, at, ended, worker)


def _never_came_back(task: Task) -> bool:
    """Return whether the latest delivery ended together with the task."""
    started, returned = task.started_at, task.returned_at
    return started is not None and (returned is None or returned < started)


@dataclass(frozen=True, slots=True)
class _Piece:
    kind: str
    start: datetime
    end: datetime
    words: str


def strip(task: Task, now: datetime, told: Sequence[StoryAttempt | StoryEvent]) -> Strip | None:
    """Return the life of *task* to scale up to *now*, or its end; None before anything happened.

    *told* is what `events` returns, with queues as the visitor may know them.
    """
    pieces = list(_pieces(task, now, told))
    if not any(piece.kind != "wait" for piece in pieces):
        return None
    first, last = task.created_at, max(piece.end for piece in pieces)
    length = (last - first).total_seconds()
    if length <= 0:
        return None

    def x(at: datetime) -> float:
        return round(max(0.0, (at - first).total_seconds()) / length * WIDTH, 1)

    def drawn(piece: _Piece) -> Stretch:
        least = _LEAST if piece.kind.startswith(_RUN) else 0.5
        width = max(least, x(piece.end) - x(piece.start))
        return Stretch(piece.kind, min(x(piece.start), WIDTH - least), round(width, 1), piece.words)

    words = "; ".join(piece.words for piece in pieces)
    return Strip(
        # Runs are drawn over waits: they are wider than they were long.
        stretches=tuple(
            drawn(piece) for piece in sorted(pieces, key=lambda one: one.kind.startswith(_RUN))
        ),
        first=first,
        last=last,
        length=length,
        words=f"{words}; {formatting.duration(length)} in all.",
        kinds=tuple(dict.fromkeys(one.kind for one in pieces if drawn(one).width >= 1)),
    )


_RUNS: Final = {
    Ended.FAILED: "run-failed",
    Ended.LAPSED: "run-failed",
    Ended.CANCELLED: "run-failed",
    Ended.SUCCEEDED: "run-succeeded",
    Ended.RUNNING: "run-inflight",
}


def _pieces(
    task: Task, now: datetime, told: Sequence[StoryAttempt | StoryEvent]
) -> Iterator[_Piece]:
    at, after_failure = task.created_at, False
    for event in told:
        if isinstance(event, StoryEvent):
            if event.at is not None and event.at > at:
                yield _wait(at, event.at, backoff=False)
                at = event.at
            after_failure = False
            continue
        end = event.ended_at or now
        name = f"attempt {event.number}"
        if event.started_at is None:
            if end > at:
                words = f"{name} waited and ran {_length(at, end)}, and {event.ended}"
                yield _Piece("unknown", at, end, words)
        else:
            if event.started_at > at:
                due = task.due_at if event.started_at == task.started_at else None
                yield from _gap(at, event.started_at, due, backoff=after_failure)
            began = max(at, event.started_at)
            said = "is running" if event.ended is Ended.RUNNING else str(event.ended)
            words = f"{name} ran {_length(began, max(began, end))}: {said}"
            yield _Piece(_RUNS[event.ended], began, max(began, end), words)
        at, after_failure = max(at, end), event.ended in (Ended.FAILED, Ended.LAPSED)
    if task.state is State.ENQUEUED:
        yield from _gap(at, max(now, task.due_at), task.due_at, backoff=after_failure)
    elif task.finished_at is not None and task.finished_at > at:
        yield _wait(at, task.finished_at, backoff=False)


def _gap(
    start: datetime, end: datetime, due: datetime | None, *, backoff: bool
) -> Iterator[_Piece]:
    """Yield the pieces between two attempts: the backoff, and the wait after it."""
    if due is not None and start < due < end:
        yield _wait(start, due, backoff=True, why="backed off" if backoff else "was not due")
        yield _wait(due, end, backoff=False)
    elif end > start:
        later = due is not None and due >= end
        why = "backed off" if backoff else "was not due"
        said = why if later else "backed off and waited" if backoff else "waited"
        yield _wait(start, end, backoff=backoff or later, why=said)


def _wait(start: datetime, end: datetime, *, backoff: bool, why: str = "waited") -> _Piece:
    return _Piece("backoff" if backoff else "wait", start, end, f"{why} {_length(start, end)}")


def _length(start: datetime, end: datetime) -> str:
    return formatting.duration((end - start).total_seconds())
