"""A worker that notes every end of its handler in a file: ``python … QUEUE FILE [isolate]``.

A line is the id of the task and its fence, which is another one for each delivery.
"""

import logging
import os
import sys
import time

from headrace.client.app.app import App
from headrace.client.app.context import Context
from headrace.client.worker.worker import Worker

WORK_SECONDS = 0.01

app = App()


@app.middleware
def noted(ctx: Context):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Note what ends well; one short write to a file opened for appending is never torn."""
    yield
    line = f"{ctx.id} {ctx.fence} {ctx.attempt} {os.getpid()}\n"
    file = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)


def work(payload: object) -> object:
    """Take a moment."""
    time.sleep(WORK_SECONDS)
    return payload


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    app.handler(queue=sys.argv[1])(work)
    Worker(app, concurrency=8, shutdown_timeout=10).run()
