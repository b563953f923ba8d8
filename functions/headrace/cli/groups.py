"""The groups of a queue as options, and what is said where those do not go together."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from headrace.cli import params
from headrace.cli.commands import options
from headrace.domain.errors import FieldError, InvalidRequest

group_options: Final = options(
    click.option(
        "--groups",
        type=params.groups,
        metavar="MODE",
        help="Of tasks: fair (fair:acme=4,beta=0.5), in turns; strict, in order; or none.",
    ),
    click.option(
        "--group-limit", type=int, metavar="N", help="Tasks of a group run at once; 0 is any."
    ),
    click.option(
        "--on-dead",
        type=click.Choice(("continue", "halt")),
        help="In strict order, what those behind a dead task do.",
    ),
)


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
