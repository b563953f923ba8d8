"""The exit codes of `headrace`: stable, so that scripts may branch on them."""

from enum import IntEnum
from typing import Final

from headrace.domain.errors import (
    Conflict,
    Forbidden,
    HeadraceError,
    InvalidRequest,
    NotEnqueued,
    NotFound,
    RateLimited,
    Unauthenticated,
    Unavailable,
)


class Exit(IntEnum):
    """The exit code of a command, as in docs/guide/cli.md."""

    DONE = 0  #: all is done, and nothing is wrong
    FAILED = 1  #: it failed, or was done in part only, or `doctor` has advice
    USAGE = 2  #: the command line or a value makes no sense, or names no service or no key
    NOT_FOUND = 3  #: there is no such queue, task, schedule, key or worker
    NOT_ALLOWED = 4  #: the key is unknown, or may not do this
    CONFLICT = 5  #: it exists already, was changed meanwhile, is in flight, or under another lease
    UNAVAILABLE = 6  #: the service cannot be reached, or cannot answer now
    INTERRUPTED = 130  #: Ctrl-C


_BY_ERROR: Final[tuple[tuple[type[HeadraceError], Exit], ...]] = (
    (NotEnqueued, Exit.FAILED),
    (InvalidRequest, Exit.USAGE),
    (NotFound, Exit.NOT_FOUND),
    (Unauthenticated, Exit.NOT_ALLOWED),
    (Forbidden, Exit.NOT_ALLOWED),
    (Conflict, Exit.CONFLICT),
    (RateLimited, Exit.UNAVAILABLE),
    (Unavailable, Exit.UNAVAILABLE),
)


def exit_of(error: HeadraceError) -> Exit:
    """Return the code with which a command ends that met *error*."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), Exit.FAILED)
