"""Lines in the log that say which task they are about, as text or as JSON."""

import json
import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO, TypeAlias

from headrace.wire.tasks import LeasedTask

LogFormat: TypeAlias = Literal["text", "json"]

FIELDS: Final = ("task_id", "queue", "attempt", "task_name", "outcome", "seconds", "worker")
"""What records of this package may carry beside the message."""


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
    """Return the ``extra`` of a record about *task*."""
    return {"task_id": task.id, "queue": task.queue, "attempt": task.attempts, **more}


class TextFormatter(logging.Formatter):
    """``2026-11-21 08:00:00,000 INFO headrace.worker: …``, the task in brackets behind it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the base's name)
        """Return the line without its traceback."""
        text = super().formatMessage(record)
        task = getattr(record, "task_id", None)
        if task is None:
            return text
        return f"{text} [task {task}, attempt {getattr(record, 'attempt', '?')}]"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and what is known of the task."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        known = record.__dict__
        line |= {field: known[field] for field in FIELDS if known.get(field) is not None}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(
    log_format: LogFormat = "text", *, level: int | str = "INFO", stream: TextIO | None = None
) -> None:
    """Let everything that is logged appear on *stream* (stderr), for programs that do not care.

    Raises ValueError for an unknown *log_format*.
    """
    global _configured  # noqa: PLW0603 (there is one root logger in a process)
    formatters = {"text": TextFormatter, "json": JsonFormatter}
    if log_format not in formatters:
        raise ValueError(f"log_format must be text or json, not {log_format!r}")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatters[log_format]())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    _configured = Configured(log_format, level, to_stdout=stream is sys.stdout)
    for chatty in ("httpx2", "httpcore2", "httpx", "httpcore"):  # a line for each request
        logging.getLogger(chatty).setLevel(logging.WARNING)
