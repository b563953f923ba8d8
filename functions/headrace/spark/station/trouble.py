"""What Spark's errors mean for a batch."""

import re
from enum import Enum
from typing import Final

from headrace.domain.errors import HeadraceError
from headrace.ops.reports import WorkerError
from headrace.spark.sources.rows import fitted

_LAST_LINE: Final = re.compile(r"^([A-Za-z_][\w.]*): ?(.*)$")
_PY4J: Final = "An error occurred while calling "
_AWAY: Final = "headrace.domain.errors.Unavailable"
_OVER: Final = "headrace.domain.errors.LeaseLost"


class StationFailed(HeadraceError):
    """The transform fails for too many tasks: what was held has been given back."""

    code = "station_failed"
    title = "Station failed"


class Trouble(Enum):
    """Why a job failed."""

    AWAY = "the tables were throttled or away for too long"
    OVER = "the group of the batch is over"
    CRASHED = "a process died; it may have been a task's doing, or not"
    RAISED = "the transform raised an error, which it will again"


def trouble_of(error: BaseException) -> Trouble:
    """Return why the job failed that ended with *error*."""
    text = str(error)
    if _AWAY in text:
        return Trouble.AWAY
    if _OVER in text:
        return Trouble.OVER
    if "Traceback (most recent call last)" in text or "Error: [" in text:
        return Trouble.RAISED
    return Trouble.CRASHED


def told(error: BaseException) -> WorkerError:
    """Return what a dead task keeps of *error*: its type and message, without Spark's own words."""
    text = str(error)
    if trouble_of(error) is Trouble.CRASHED:
        return WorkerError("WorkerCrashed", _line(text))
    _, _, trace = text.rpartition("Traceback (most recent call last):")
    for line in trace.splitlines():
        said = _LAST_LINE.match(line)
        if said:
            return WorkerError(said[1].rpartition(".")[2], fitted(said[2]))
    return WorkerError("TransformFailed", _line(text))


def _line(text: str) -> str:
    """Return the first line that says something: py4j's own names only what it had called."""
    lines = (line.strip(" :\t") for line in text.splitlines())
    said = (line for line in lines if line and not line.startswith(_PY4J))
    return fitted(next(said, "no reason was given"))
