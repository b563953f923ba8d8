"""Tasks from lines of NDJSON: read, sent 25 in a call, and each result with its line's number.

Memory stays constant: at most one call's lines are held.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

from headrace.client.codec import PLAIN
from headrace.client.sending import NewTask, task_entry
from headrace.domain import limits
from headrace.domain.errors import InvalidRequest
from headrace.wire.tasks import Enqueued

if TYPE_CHECKING:
    from headrace.client.client import Client

Defaults: TypeAlias = dict[str, Any]

LINE_BYTES: Final = limits.BODY_BYTES
"""A task's line is at most as long as the body of a call."""

_CALL_BYTES: Final = limits.BODY_BYTES * 3 // 4  # leaves room for what the options add
_TIMES: Final = ("scheduled_at", "delay_in_seconds")
_NAMES: Final = tuple(NewTask.__dataclass_fields__)


class BadLine(ValueError):
    """A line that cannot be a task; the text says why."""


Result: TypeAlias = Enqueued | BadLine | None
"""None: the line was only checked."""


@dataclass(frozen=True, slots=True)
class LineReader:
    """Reads tasks from lines.

    Args:
        defaults: fields for every task that does not have its own.
        whole: whether a line is a whole task, not only its payload.
        function: makes each line the arguments of a call of this function.
        run: a task without an id gets one of this and its line's number, so that the same lines
            may be sent again.

    """

    defaults: Defaults
    whole: bool
    function: str | None
    run: str

    def task(self, number: int, text: bytes) -> NewTask:
        """Return the task of a line.  Raises BadLine."""
        if len(text) >= LINE_BYTES:
            raise BadLine(f"is longer than {LINE_BYTES:,} bytes, the most a call takes")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadLine(f"not JSON: {error}") from error
        if self.function is not None:
            value = call_of(self.function, value)
        task = self._whole(value) if self.whole else NewTask(payload=value, **self.defaults)
        if task.id is not None or task.unique_for_seconds is not None:
            return task  # with unique_for_seconds the service chooses the id
        return replace(task, id=f"{self.run}-{number}")

    def _whole(self, value: object) -> NewTask:
        if not isinstance(value, dict):
            raise BadLine('must be an object with --tasks, such as {"payload": …}')
        unknown = [name for name in value if name not in _NAMES]
        if unknown:
            raise BadLine(
                f"{unknown[0]} is no field of a task; those are {', '.join(sorted(_NAMES))}"
            )
        fields = {**self.defaults, **value}
        for name, other in (_TIMES, _TIMES[::-1]):
            if name in value and other not in value:
                fields.pop(other, None)  # a line's time replaces that of the options
        return NewTask(**fields)


def call_of(function: str, args: object) -> dict[str, Any]:
    """Return the payload that calls *function*, as an app enqueues it.  Raises BadLine."""
    if not isinstance(args, dict):
        raise BadLine('must be the arguments by name with --task: {"to": "ada@example.com"}')
    return {"task": function, "args": args}


def read_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of *stream*; of one that is too long, only the beginning."""
    while text := stream.readline(LINE_BYTES):
        yield text
        while text and len(text) >= LINE_BYTES and not text.endswith(b"\n"):
            text = stream.readline(LINE_BYTES)


def enqueue_lines(
    client: "Client | None",
    queue: str,
    lines: Iterable[tuple[int, bytes]],
    reader: LineReader,
    *,
    skip_bad: bool,
) -> Iterator[tuple[int, Result]]:
    """Send the tasks of numbered *lines*, and yield each line's number and result.

    Without a client, lines are only checked.  Unless *skip_bad*, the first BadLine is the last
    result: the lines before it have been sent, and none after it.
    """
    for number, result in _results(client, queue, lines, reader):
        yield number, result
        if isinstance(result, BadLine) and not skip_bad:
            return


def _results(
    client: "Client | None", queue: str, lines: Iterable[tuple[int, bytes]], reader: LineReader
) -> Iterator[tuple[int, Result]]:
    chunk: list[tuple[int, NewTask]] = []
    size = 0
    for number, text in lines:
        if len(chunk) == limits.BATCH or size + len(text) > _CALL_BYTES:
            yield from _sent(client, queue, chunk)
            chunk, size = [], 0
        try:
            chunk.append((number, reader.task(number, text)))
            size += len(text)
        except BadLine as bad:
            yield from _sent(client, queue, chunk)
            chunk, size = [], 0
            yield number, bad
    yield from _sent(client, queue, chunk)


def _sent(
    client: "Client | None", queue: str, chunk: list[tuple[int, NewTask]]
) -> Iterator[tuple[int, Result]]:
    """Send one chunk.  If it is refused, which sends nothing, send its tasks one by one."""
    if not chunk:
        return
    tasks = [task for _, task in chunk]
    results: list[Result]
    try:
        if client is None:
            results = [None for task in tasks if task_entry(task, PLAIN, path="tasks[0]")]
        else:
            results = [*client.enqueue_many(queue, tasks, errors="return")]
    except InvalidRequest as error:
        if not all(one.field.startswith("tasks[") for one in error.errors):
            raise
        if len(chunk) > 1:
            for one in chunk:
                yield from _sent(client, queue, [one])
            return
        results = [BadLine(error.detail.replace("tasks[0].", ""))]
    yield from zip((number for number, _ in chunk), results, strict=True)
