"""Tasks from lines of NDJSON: read, checked and sent in batches, each result with its line.

Memory stays constant: no more than one batch of lines is held.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

import msgspec

from headrace.client.codec import PLAIN
from headrace.client.operations import chunks_of
from headrace.client.sending import NewTask
from headrace.domain import limits
from headrace.domain.errors import InvalidRequest
from headrace.domain.values import convert
from headrace.wire.tasks import Enqueued

if TYPE_CHECKING:
    from headrace.client.client import Client

Defaults: TypeAlias = dict[str, Any]

LINE_BYTES: Final = limits.BODY_BYTES
"""No line that may be a task is longer."""

_CALL_BYTES: Final = limits.BODY_BYTES * 3 // 4  # room for what the options add to each entry
_TIMES: Final = ("scheduled_at", "delay_in_seconds")
_FIELD: Final = re.compile(r"tasks\[(\d+)\](?:\.(.*))?")


class BadLine(ValueError):
    """A line that cannot be a task; the text says why."""


@dataclass
class LineCounts:
    """How many lines came to what, and the last one that was answered for."""

    outcomes: Counter[str] = field(default_factory=Counter)
    last: int = 0

    def add(self, number: int, result: "Enqueued | BadLine | None") -> None:
        """Count the line *number*."""
        self.last = number
        match result:
            case BadLine():
                self.outcomes["BAD"] += 1
            case None:
                self.outcomes["fine"] += 1
            case _:
                self.outcomes[result.outcome] += 1

    @property
    def bad(self) -> int:
        """Lines that came to no task."""
        return self.outcomes["BAD"] + self.outcomes["INVALID"]

    def summary(self) -> str:
        """Return the counts in words."""
        words = [f"{count:,} {name}" for name, count in self.outcomes.most_common() if count]
        return ", ".join(words) or "no lines"


@dataclass(frozen=True, slots=True)
class InputLine:
    """A line of the file, by its number from 1; the task that it is, or why it is none."""

    number: int
    text: bytes

    def task(self, defaults: Defaults, *, whole: bool, function: str | None = None) -> NewTask:
        """Return the task of this line.  Raises BadLine."""
        if len(self.text) >= LINE_BYTES:
            raise BadLine(f"is longer than {LINE_BYTES:,} bytes, the most a call takes")
        try:
            value = json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise BadLine(f"not JSON: {error}") from error
        if function is not None:
            value = call_of(function, value)
        if not whole:
            return NewTask(payload=value, **defaults)
        return _whole(value, defaults)


def call_of(function: str, args: object) -> dict[str, Any]:
    """Return the payload that calls *function*, as an app enqueues it.  Raises BadLine."""
    if not isinstance(args, dict):
        raise BadLine('with --task it is the arguments by name, such as {"to": "ada@example.com"}')
    return {"task": function, "args": args}


@dataclass(frozen=True, slots=True, kw_only=True)
class _WholeTask(NewTask):
    """A whole task, as the API takes it."""

    overwrite_on_duplicate: list[str] | None = None  # type: ignore[assignment]  # the service checks
    retry_strategy: dict[str, Any] | None = None
    dedupe_until: str | None = None  # type: ignore[assignment]  # likewise
    priority: str | None = None  # type: ignore[assignment]  # likewise


_NAMES: Final = frozenset(_WholeTask.__dataclass_fields__)


def _whole(value: object, defaults: Defaults) -> NewTask:
    if not isinstance(value, dict):
        raise BadLine('is no task: with --tasks a line is an object such as {"payload": …}')
    unknown = [name for name in value if name not in _NAMES]
    if unknown:
        raise BadLine(f"{unknown[0]} is no field of a task; those are {', '.join(sorted(_NAMES))}")
    fields = {**defaults, **value}
    for name, other in (_TIMES, _TIMES[::-1]):
        if name in value and other not in value:
            fields.pop(other, None)  # a line's own time takes the place of the options'
    try:
        entry = convert(fields, _WholeTask)
    except msgspec.ValidationError as error:
        raise BadLine(str(error)) from error
    for name in ("scheduled_at", "expires_at"):
        at = getattr(entry, name)
        if at is not None and at.tzinfo is None:
            raise BadLine(f"{name} needs a time zone, as in 2026-11-21T08:00:00Z")
    return NewTask(**{name: getattr(entry, name) for name in _NAMES})


def numbered(stream: Iterable[bytes], *, first: int = 1) -> Iterator[InputLine]:
    """Return the lines that are not blank, by their number, from line *first* on."""
    for number, text in enumerate(stream, start=1):
        if number >= first and text.strip():
            yield InputLine(number, text)


def read_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Go through the lines of *stream*; of one that is too long, only the beginning is kept."""
    while text := stream.readline(LINE_BYTES):
        yield text
        while text and len(text) >= LINE_BYTES and not text.endswith(b"\n"):
            text = stream.readline(LINE_BYTES)


Result: TypeAlias = Enqueued | BadLine | None


def enqueue_lines(
    client: "Client | None",
    queue: str,
    lines: Iterable[InputLine],
    defaults: Defaults,
    *,
    whole: bool,
    skip_bad: bool,
    function: str | None = None,
    run: str | None = None,
) -> Iterator[tuple[int, Result]]:
    """Send the tasks of *lines*; without a client only check them, which gives None for each.

    With *run* a task without an id has that and the number of its line as one, so that the same
    lines may be sent again.  With *function* each line is its arguments.

    Yields each line's number and what became of it.  Unless *skip_bad*, a BadLine is the last one:
    all before it has been sent, nothing after it.
    """

    def read(one: InputLine) -> NewTask:
        task = one.task(defaults, whole=whole, function=function)
        if run is None or task.id is not None:
            return task
        if task.unique_for_seconds is not None:
            return task  # the service chooses the id
        return replace(task, id=f"{run}-{one.number}")

    for number, result in _results(client, queue, lines, read):
        yield number, result
        if isinstance(result, BadLine) and not skip_bad:
            return


def _results(
    client: "Client | None",
    queue: str,
    lines: Iterable[InputLine],
    read: Callable[[InputLine], NewTask],
) -> Iterator[tuple[int, Result]]:
    batch: list[tuple[int, NewTask]] = []
    size = 0
    for one in lines:
        full = len(batch) == limits.BATCH or size + len(one.text) > _CALL_BYTES
        if full:
            yield from _sent(client, queue, batch)
            batch, size = [], 0
        try:
            batch.append((one.number, read(one)))
            size += len(one.text)
        except BadLine as bad:
            yield from _sent(client, queue, batch)
            batch, size = [], 0
            yield one.number, bad
    yield from _sent(client, queue, batch)


def _sent(
    client: "Client | None", queue: str, batch: list[tuple[int, NewTask]]
) -> Iterator[tuple[int, Result]]:
    """Send one batch.

    A call with anything wrong in it is refused whole, before anything happens: then what stands
    before the first bad line goes out first, and what stands after it last.
    """
    if not batch:
        return
    tasks = [task for _, task in batch]
    results: Sequence[Enqueued | None]
    try:
        results = client.enqueue_many(queue, tasks, errors="return") if client else _checked(tasks)
    except InvalidRequest as error:
        bad = _bad_places(error)
        if not bad or max(bad) >= len(batch):
            raise
        first = min(bad)
        yield from _sent(client, queue, batch[:first])
        yield batch[first][0], BadLine(bad[first])
        yield from _sent(client, queue, batch[first + 1 :])
        return
    yield from zip((number for number, _ in batch), results, strict=True)


def _checked(tasks: Sequence[NewTask]) -> list[None]:
    """Write *tasks* as a call would have them.  Raises InvalidRequest naming the entry."""
    for _ in chunks_of(tasks, PLAIN):
        pass
    return [None] * len(tasks)


def _bad_places(error: InvalidRequest) -> Mapping[int, str]:
    """Return which entries of a batch are wrong, and how; none when that is not what is wrong."""
    bad: dict[int, str] = {}
    for one in error.errors:
        found = _FIELD.fullmatch(one.field)
        if found is None:
            return {}
        problem = f"{found[2]} {one.message}" if found[2] else one.message
        place = int(found[1])
        bad[place] = f"{bad[place]}; {problem}" if place in bad else problem
    return bad
