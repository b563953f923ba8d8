"""A worker whose handlers do not end by themselves: ``python … QUEUE``."""

import logging
import sys
import time

from headrace.client.app.app import App
from headrace.client.worker.worker import Worker

app = App()


def wait(payload: object) -> None:
    """Wait in Python."""
    print("begun", flush=True)  # noqa: T201 (for who started it)
    while True:
        time.sleep(0.01)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    app.handler(queue=sys.argv[1])(wait)
    Worker(app, shutdown_timeout=3600).run()
