"""Exit codes of a process on Spark that cannot go on, with one line on stderr."""

import logging
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from headrace.domain import errors
from headrace.domain.errors import HeadraceError, InvalidRequest, NotFound, Unavailable
from headrace.spark.session import JavaMissing, SparkElsewhere, SparkMissing

DONE, FAILED, USAGE, NOT_FOUND, AWAY, INTERRUPTED = 0, 1, 2, 3, 6, 130
"""The exit codes: those of the command ``headrace``."""

_WORDY: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_OURS: Final = re.compile(r"(?:^|: )headrace\.(?:domain\.errors\.)?(\w+): (.+)$", re.MULTILINE)
_LAST_BREATH: Final = 1.0  # seconds from the end of a connection until a process is seen to be over


def failed(error: Exception) -> int:
    """Write on stderr what *error* means; return the exit code for it.

    Raises *error* again when it is a defect: then its traceback is wanted.
    """
    code, text = FAILED, str(error)
    ours = error if isinstance(error, HeadraceError) else _inside(text)
    if ours is not None:
        code, text = _code(ours), str(ours)
    elif _spark_ended():
        text = "Spark's process ended"
    elif not isinstance(error, (SparkMissing, JavaMissing, SparkElsewhere, OSError)):
        raise error
    sys.stderr.write(f"error: {text}\n")
    return code


def exit_code(job: Callable[[], int], *, interrupted: str) -> int:
    """Run *job*; return its exit code, or that of its error, or of Ctrl-C.

    *interrupted* is written at Ctrl-C.  Raises an error that is a defect.
    """
    try:
        return job()
    except Exception as error:  # noqa: BLE001 (a defect is raised again there)
        return failed(error)
    except KeyboardInterrupt:
        sys.stderr.write(f"{interrupted}\n")
        return INTERRUPTED


def first_line(error: Exception) -> str:
    """The first line of Spark's message, before it shows the query and the plan."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def silence_logs() -> None:
    """Silence the logs of Py4J and PySpark about each failed call: the command says why."""
    logging.getLogger().addFilter(_not_of_py4j)
    for name in _WORDY:
        logging.getLogger(name).disabled = True


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def _spark_ended() -> bool:
    """Whether the Java that this process started has ended."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    gateway = getattr(context, "_gateway", None)  # no other way
    java: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if java is None:
        return False
    try:
        java.wait(_LAST_BREATH)
    except subprocess.TimeoutExpired:
        return False
    return True


def _inside(text: str) -> HeadraceError | None:
    """Return the error of ours that a worker of Spark reported in *text*; None without one."""
    for name, detail in _OURS.findall(text):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, HeadraceError):
            return kind(detail)
    return None


def _code(error: HeadraceError) -> int:
    match error:
        case InvalidRequest():
            return USAGE
        case NotFound():
            return NOT_FOUND
        case Unavailable():
            return AWAY
        case _:
            return FAILED
