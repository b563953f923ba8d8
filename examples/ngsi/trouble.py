"""What the demo does to its workers, so that there is something to see.

One task in ten fails on its first attempt; which one is decided by its id, so everybody can work it
out.  And once, where a token is laid out, a worker dies at the worst moment there is: its rows
written, and not yet reported.
"""

import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from examples.ngsi.app import ENTITIES_QUEUE, NOTIFY_QUEUE
from headrace import Context, Retry

ON_PURPOSE = "failed on purpose: the first attempt at one task in ten"
ONE_IN = 10


def fails_once(task_id: str) -> bool:
    """Whether the first attempt at this task fails on purpose."""
    return int.from_bytes(hashlib.sha256(task_id.encode()).digest()[:4]) % ONE_IN == 0


def fail_once(ctx: Context) -> Iterator[None]:
    """Middleware: fail the first attempt at one task in ten."""
    if ctx.queue == NOTIFY_QUEUE and ctx.attempt == 1 and fails_once(ctx.id):
        raise Retry(ON_PURPOSE)
    yield


def die_for(
    token: Path, last_words: Callable[[], None] = lambda: None
) -> Callable[[Context], Iterator[None]]:
    """Middleware: whoever has written rows and finds the *token* takes it, and is no more."""

    def die_once(ctx: Context) -> Iterator[None]:
        yield
        if ctx.queue == ENTITIES_QUEUE and taken(token):
            last_words()
            os.kill(os.getpid(), signal.SIGKILL)

    return die_once


def taken(token: Path) -> bool:
    """Take the *token*; return whether it was there, which is true once."""
    try:
        token.unlink()
    except FileNotFoundError:
        return False
    return True
