"""PgQueuer on PostgreSQL, whose workers hear of new jobs from the database."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterable
from typing import Final

import asyncpg
import uvloop
from pgqueuer import PgQueuer, run
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.peers.stamp import stamp

BROKER: Final = os.environ["PEERS_BROKER"]

# One loop and one connection for all that is enqueued, as in a program that runs on.
_runner = asyncio.Runner()
_opened: list[Queries] = []


async def noop(job: Job) -> None:
    stamp(int(job.payload))


@contextlib.asynccontextmanager
async def worker() -> AsyncIterator[PgQueuer]:
    """Give what a worker runs."""
    connection = await asyncpg.connect(BROKER)
    try:
        manager = PgQueuer(AsyncpgDriver(connection))

        manager.entrypoint("noop")(noop)
        yield manager
    finally:
        await connection.close()


def prepare() -> None:
    """Make the tables, unless they are there."""
    _opened.append(_runner.run(_queries()))


def enqueue(numbers: Iterable[int]) -> None:
    payloads = [b"%d" % number for number in numbers]
    count = len(payloads)
    _runner.run(_opened[0].enqueue(["noop"] * count, payloads, [0] * count))


async def _queries() -> Queries:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(BROKER)))
    if not await queries.schema_is_installed():
        await queries.install()
    return queries


if __name__ == "__main__":
    # What `pgq run` does; that one fails on its own --log-level with the typer of today.
    uvloop.run(run(worker))
