"""Procrastinate on PostgreSQL, whose workers hear of new tasks from the database."""

import os
from collections.abc import Iterable

from procrastinate import App, PsycopgConnector

from benchmarks.peers.stamp import stamp

app = App(connector=PsycopgConnector(conninfo=os.environ["PEERS_BROKER"]))


noop = app.task(stamp, name="noop", queue="bench")


def prepare() -> None:
    """Make the tables, unless they are there."""
    app.open()
    if not app.check_connection():
        app.schema_manager.apply_schema()


def enqueue(numbers: Iterable[int]) -> None:
    noop.batch_defer(*({"number": number} for number in numbers))
