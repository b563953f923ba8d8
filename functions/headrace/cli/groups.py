"""What is said where the options of a queue's groups do not go together."""

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.domain.errors import FieldError, InvalidRequest


@contextmanager
def groups_named() -> Iterator[None]:
    """Say of a limit of groups where there are none which option it goes with, after the rest."""
    try:
        yield
    except InvalidRequest as error:
        missing = FieldError("groups.mode", "is required")
        if missing not in error.errors:
            raise
        others = [one for one in error.errors if one != missing]
        rest = [f"{one.field} {one.message}" for one in others]
        why = "--group-limit goes with --groups fair: a queue without groups has none to limit"
        raise InvalidRequest("; ".join([*rest, why]), errors=others) from error
