"""Job errors: what Spark's errors mean for a batch."""

import re
from enum import Enum
from typing import Final

from headrace.domain.errors import HeadraceError
from headrace.ops.delivery.reports import WorkerError
from headrace.spark.sources.rows import fitted

_LAST_LINE: Final = re.compile(r"^([A-Za-z_][\w.]*): ?(.*)$")
_PY4J: Final = "An error occurred while calling "
_AWAY: Final = "headrace.domain.errors.Unavailable"
_OVER: Final = "headrace.domain.errors.LeaseLost"


class StationFailed(HeadraceError):
    """The transform fails for too many tasks: what was held has been given back."""

    code = "station_failed"
    title = "Station failed"


class JobError(Enum):
    """Why a job failed."""

    AWAY = "the tables were throttled or away for too long"
    OVER = "the group of the batch is over"
    CRASHED = "a process died; it may have been a task's doing, or not"
    RAISED = "the transform raised an error, which it will again"


def job_error(error: BaseException) -> JobError:
    """Why the job failed that ended with *error*."""
    text = str(error)
    if _AWAY in text:
        return JobError.AWAY
    if _OVER in text:
        return JobError.OVER
    if "Traceback (most recent call last)" in text or "Error: [" in text:
        return JobError.RAISED
    return JobError.CRASHED


def worker_error(error: BaseException) -> WorkerError:
    """The error that a dead task keeps: its type and message, without Spark's own words."""
    text = str(error)
    if job_error(error) is JobError.CRASHED:
        return WorkerError("WorkerCrashed", _line(text))
    _, _, trace = text.rpartition("Traceback (most recent call last):")
    for line in trace.splitlines():
        last = _LAST_LINE.match(line)
        if last:
            return WorkerError(last[1].rpartition(".")[2], fitted(last[2]))
    return WorkerError("TransformFailed", _line(text))


def _line(text: str) -> str:
    """The first line with content; those of py4j only name the call."""
    lines = (line.strip(" :\t") for line in text.splitlines())
    useful = (line for line in lines if line and not line.startswith(_PY4J))
    return fitted(next(useful, "no reason was given"))
