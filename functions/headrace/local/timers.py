"""The timers of the local service, in a process of their own beside the one that answers.

To count what was written takes a sixth of the CPU of a task here.  A process of Python runs one
thread at a time, so in the one that answers every request would wait for that.
"""

import logging
import sys
from typing import Final

from headrace.domain.errors import Unavailable
from headrace.embedded.service import service_on
from headrace.embedded.timers import FileTimers
from headrace.local.child import SupervisedProcess, begin, module_command, until_stdin_ends
from headrace.runtime.wiring import Settings

_log: Final = logging.getLogger("headrace.timers")


def timers_process(path: str) -> SupervisedProcess:
    """Return the process that runs the timers of the file at *path*."""
    return SupervisedProcess("timers", module_command("headrace.local.timers", path), log=_log)


def main(path: str) -> int:
    """Run the timers of the file at *path* until stdin ends; return the exit code."""
    begin()
    try:
        service = service_on(path, Settings.from_env())
    except Unavailable as error:
        _log.error("The timers cannot run: %s", error.detail)
        return 1
    try:
        with FileTimers(service, now=service.use.now):
            until_stdin_ends()
    finally:
        service.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
