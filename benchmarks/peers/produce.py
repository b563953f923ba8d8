"""`python -m benchmarks.peers.produce APP fill N | probe N`: enqueue as a peer's user would.

``fill`` enqueues the tasks 0 to N - 1. ``probe`` enqueues one task at a time, waits until it has
run, and prints as JSON when it began to enqueue each, by number.
"""

import importlib
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.stamp import FILE_VARIABLE

# Numbers of probes, which must not be those of tasks that a drain has run.
FIRST_PROBE: Final = 1_000_000_000
WARM_UPS: Final = 5

_PAUSE_SECONDS: Final = (0.02, 0.12)  # uneven, so that a worker that polls is met at any moment
_LOOK_SECONDS: Final = 0.0005
_PATIENCE_SECONDS: Final = 30.0


def main(name: str, verb: str, count: int) -> None:
    """Do what the command line says with the application of that name."""
    app = importlib.import_module(f"benchmarks.peers.apps.{name}")
    app.prepare()
    if verb == "fill":
        app.enqueue(range(count))
    else:
        print(json.dumps(_probe(app, count)))


def _probe(app: Any, count: int) -> dict[int, int]:
    """Enqueue tasks one by one; return when each was begun, in nanoseconds."""
    stamps = Path(os.environ[FILE_VARIABLE])
    sent = {}
    for number in range(FIRST_PROBE - WARM_UPS, FIRST_PROBE + count):
        size = stamps.stat().st_size
        sent[number] = time.monotonic_ns()
        app.enqueue([number])
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while stamps.stat().st_size == size:
            if time.monotonic() > deadline:
                sys.exit(f"No worker ran a single task within {_PATIENCE_SECONDS:g} seconds.")
            time.sleep(_LOOK_SECONDS)
        time.sleep(random.uniform(*_PAUSE_SECONDS))
    return {number: at for number, at in sent.items() if number >= FIRST_PROBE}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
