"""How a function with much to import starts."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def starting() -> Iterator[None]:
    """Return a block for imports: all that they make stays, so nobody looks for garbage among it.

    Python would, again and again: a seventh of a start, and later now and then a request.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
