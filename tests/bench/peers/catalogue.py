"""The rows of the table: each peer with its broker, its worker's command line and its settings."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.peers import brokers
from tests.bench.peers.brokers import Broker

_APPS: Final = "tests.bench.peers.apps"


@dataclass(frozen=True, slots=True)
class Peer:
    """One row: a library with one way to run its workers.

    ``worker`` is the command line of one worker process, its first word a program of the virtual
    environment that the library is installed in. Headrace must be ahead of those with a ``bar``.
    A slow one drains only its ``share`` of the tasks, so that nobody waits for it.
    """

    name: str
    title: str
    package: str
    app: str
    broker: Broker
    worker: tuple[str, ...]
    settings: str
    bar: bool = False
    share: float = 1.0


def _words(*lines: str) -> tuple[str, ...]:
    return tuple(" ".join(lines).split())


HEADRACE: Final = Peer(
    name="headrace",
    title="Headrace",
    package="headrace",
    app="headrace",
    broker=brokers.headrace,
    worker=_words(f"python -m headrace.cli.main work {_APPS}.headrace:app"),
    settings="the local service, data on disk; `headrace work` as it comes: threads",
)

# In the order of their turns.
PEERS: Final = (
    Peer(
        name="rq-fork",
        title="RQ, forking",
        package="rq",
        app="rq",
        broker=brokers.redis,
        worker=_words("rq worker bench"),
        settings="`rq worker` as it comes: a process forked for each job; a quarter of the tasks",
        bar=True,
        share=0.25,
    ),
    Peer(
        name="rq-simple",
        title="RQ, simple",
        package="rq",
        app="rq",
        broker=brokers.redis,
        worker=_words("rq worker --worker-class rq.SimpleWorker bench"),
        settings="`--worker-class rq.SimpleWorker`: jobs run in the worker; half of the tasks",
        bar=True,
        share=0.5,
    ),
    Peer(
        name="procrastinate",
        title="Procrastinate",
        package="procrastinate",
        app="procrastinate",
        broker=brokers.postgres,
        worker=_words(f"procrastinate --app {_APPS}.procrastinate.app worker"),
        settings="concurrency 1 (default), a plain function, LISTEN/NOTIFY",
        bar=True,
    ),
    # Beside those it is hardest to be ahead of: what else the machine does then meets all three.
    HEADRACE,
    Peer(
        name="celery",
        title="Celery, acks late",
        package="celery",
        app="celery",
        broker=brokers.redis,
        worker=_words(
            f"celery --app {_APPS}.celery worker --pool prefork --concurrency 1",
            "--hostname {worker}@bench",
        ),
        settings="prefork, concurrency 1, acks late, prefetch multiplier 4 (default), no results",
        bar=True,
    ),
    Peer(
        name="dramatiq",
        title="Dramatiq",
        package="dramatiq",
        app="dramatiq",
        broker=brokers.redis,
        worker=_words(f"dramatiq {_APPS}.dramatiq --processes 1"),
        settings="8 threads (default) in each process, no results; its workers fetch tasks ahead",
    ),
    Peer(
        name="huey",
        title="Huey",
        package="huey",
        app="huey",
        broker=brokers.redis,
        worker=_words(f"huey_consumer {_APPS}.huey.huey"),
        settings="1 worker thread (default), blocking; a killed worker loses the task in hand",
    ),
)


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the programs of the peers are, and our own."""

    peers: Path

    def python(self, peer: Peer) -> str:
        """Return the Python that *peer* is installed in."""
        return sys.executable if peer is HEADRACE else str(self.peers)

    def worker(self, peer: Peer, worker: int) -> list[str]:
        """Return the command line of a *worker*, the first of which is 0."""
        program, *arguments = peer.worker
        folder = Path(self.python(peer)).parent
        return [
            str(folder / program),
            *(word.replace("{worker}", f"worker{worker}") for word in arguments),
        ]
