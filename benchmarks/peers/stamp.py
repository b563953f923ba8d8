"""The task that all peers run: it does nothing but say, in 24 bytes, that it ran, when and where.

One write to a file that was opened for appending: cheap, whole, and still there when the process
that made it is a fork that ends without a word, as RQ's are.
"""

import functools
import os
import struct
import time
from typing import Final

FILE_VARIABLE: Final = "PEERS_STAMPS"
WORKER_VARIABLE: Final = "PEERS_WORKER"
# The task's number, the nanosecond on the clock that all processes of a machine share, the worker.
RECORD: Final = struct.Struct("<3q")


def stamp(number: int) -> None:
    """Append a record for the task of this number."""
    file, worker = _opened()
    os.write(file, RECORD.pack(number, time.monotonic_ns(), worker))


@functools.cache
def _opened() -> tuple[int, int]:
    file = os.open(os.environ[FILE_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    return file, int(os.environ[WORKER_VARIABLE])
