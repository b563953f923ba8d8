"""Lines in the log that say which task they are about, as text or as JSON."""

import json
import logging
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO, TypeAlias

from headrace.client.current import current_attempt
from headrace.domain.texts import escape_unseen, json_escape
from headrace.wire.tasks import LeasedTask

LogFormat: TypeAlias = Literal["text", "json"]

FIELDS: Final = (
    *("task_id", "queue", "attempt", "priority", "task_name", "outcome", "seconds", "worker"),
)
"""What records of this package may carry beside the message."""

_NEXT_LINE: Final = "\n    "
_OWN: Final = frozenset({"time", "level", "logger", "message", "traceback", "stack"})
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@dataclass(frozen=True, slots=True)
class Configured:
    """The last settings of `configure`, for child processes to use too."""

    log_format: LogFormat
    level: int | str
    to_stdout: bool

    def again(self) -> None:
        """Configure this process so."""
        configure(
            self.log_format,
            level=self.level,
            stream=sys.stdout if self.to_stdout else sys.stderr,
        )


_configured: Configured | None = None


def configured() -> Configured | None:
    """Return how logging was set up here; None: the program did it its own way."""
    return _configured


def about(task: LeasedTask, **more: object) -> dict[str, object]:
    """Return the ``extra`` of a record about *task*: with its priority, if it has one."""
    ranked = {} if task.priority is None else {"priority": task.priority}
    return {"task_id": task.id, "queue": task.queue, "attempt": task.attempts, **ranked, **more}


class TaskLogFilter(logging.Filter):
    """Gives what a handler logs, by whatever logger, the fields of the task it runs for.

    `configure` sets it; where a program configures logging itself, add one to its log handlers.
    It lets every record through, and fields that a record has already stay as they are.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add ``task_id``, ``queue``, ``attempt`` and ``task_name``, where there is a task."""
        ctx = current_attempt()
        if ctx is not None and "task_id" not in vars(record):
            known = {**about(ctx.task), "task_name": ctx.name}
            vars(record).update({**known, **_extra(record)})
        return True


class TextFormatter(logging.Formatter):
    """``2026-11-21 08:00:00,000 INFO headrace.worker: …``, the task in brackets behind it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the record with control and invisible characters escaped.

        Lines after the first, such as those of a traceback, are indented: no text in a record can
        look like another record.
        """
        return escape_unseen(super().format(record)).replace("\n", _NEXT_LINE)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the base's name)
        """Return the line without its traceback."""
        text = super().formatMessage(record)
        known = vars(record)
        if known.get("task_id") is None:
            return text
        queue, attempt = known.get("queue", "?"), known.get("attempt", "?")
        ranked = f", {known['priority']} priority" if known.get("priority") else ""
        return f"{text} [task {known['task_id']}, queue {queue}, attempt {attempt}{ranked}]"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the task, and the record's ``extra``.

    What an ``extra`` has under one of the line's own names is ``extra_level`` and so on.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the object."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = _extra(record)
        line |= {field: extra[field] for field in FIELDS if extra.get(field) is not None}
        for name, value in extra.items():
            if name not in FIELDS:
                line[f"extra_{name}" if name in _OWN else name] = value
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return _json(line)


class _LineHandler(logging.StreamHandler[TextIO]):
    """The handler of `configure`."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (the base's name)
        """Report the error in hand as the base does; raise nothing if stderr itself is closed."""
        with suppress(Exception):
            super().handleError(record)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _json(line: dict[str, Any]) -> str:
    """*line* as JSON; what JSON does not know is text, so that no line is lost for one value."""
    try:
        text = json.dumps(line, ensure_ascii=False, default=str, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        plain = {name: _plain(value) for name, value in line.items()}
        text = json.dumps(plain, ensure_ascii=False)
    return escape_unseen(text, json_escape)


def _plain(value: object) -> object:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
    return value


def is_configured() -> bool:
    """Whether the program has set up logging: a handler gets the records of this package."""
    return logging.getLogger("headrace.worker").hasHandlers()


def _writes_to_terminal(handler: logging.Handler) -> bool:
    """Whether *handler* was made by `configure`, or writes to stdout or stderr."""
    if isinstance(handler, _LineHandler):
        return True
    stream = getattr(handler, "stream", None)
    standard = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return stream is not None and any(stream is one for one in standard)


def configure(
    log_format: LogFormat = "text", *, level: int | str = "INFO", stream: TextIO | None = None
) -> None:
    """Let everything that is logged appear on *stream* (stderr).

    It replaces handlers of the root logger that write to stdout or stderr.  Others stay, such as
    those that write to files.  Raises ValueError for an unknown *log_format*.
    """
    global _configured  # noqa: PLW0603 (there is one root logger in a process)
    formatters = {"text": TextFormatter, "json": JsonFormatter}
    if log_format not in formatters:
        raise ValueError(f"log_format must be text or json, not {log_format!r}")
    handler = _LineHandler(stream or sys.stderr)
    handler.setFormatter(formatters[log_format]())
    handler.addFilter(TaskLogFilter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        if _writes_to_terminal(old):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    _configured = Configured(log_format, level, to_stdout=stream is sys.stdout)
    # A line for each request, or for each client that is made.
    for chatty in ("httpx2", "httpcore2", "httpx", "httpcore", "botocore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
