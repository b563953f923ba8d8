"""The timers of the local service, in a process of their own beside the one that answers.

To count what was written takes a sixth of the CPU of a task here.  A process of Python runs one
thread at a time, so in the one that answers every request would wait for that.
"""

import sys
from typing import Final

from headrace.domain.errors import Unavailable
from headrace.embedded.service import service_at
from headrace.embedded.timers import EmbeddedTimers
from headrace.local.child import SupervisedProcess, begin, module_command, until_stdin_ends
from headrace.runtime.wiring import Settings
from headrace.safe_logging import safe_logger

_log: Final = safe_logger("headrace.timers")


def timers_process(path: str | None) -> SupervisedProcess:
    """Return the process that runs the timers.

    They work on the file at *path*, or on the DynamoDB tables that the environment names.
    """
    command = module_command("headrace.local.timers", *([path] if path else []))
    return SupervisedProcess("timers", command, log=_log)


def main(path: str | None = None) -> int:
    """Run the timers until stdin ends; return the exit code."""
    begin()
    try:
        service = service_at(path, Settings.from_env())
    except Unavailable as error:
        _log.error("The timers cannot run: %s", error.detail)
        return 1
    try:
        with EmbeddedTimers(service, now=service.use.now):
            until_stdin_ends()
    finally:
        service.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
