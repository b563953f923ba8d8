"""The rows of the table: each peer with its broker, its worker's command line and its settings."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final

from benchmarks.peers import brokers
from benchmarks.peers.brokers import Broker, LeftOut

_FOLDER: Final = Path(__file__).parent
_APPS: Final = "benchmarks.peers.apps"
_NODE_MODULES: Final = _FOLDER / "node_modules"


class Runtime(Enum):
    """What a peer's programs run on."""

    OURS = auto()
    PEERS = auto()
    NODE = auto()


@dataclass(frozen=True, slots=True)
class Peer:
    """One row: a library with one way to run its workers.

    ``worker`` is the command line of one worker process, its first word a program of what the
    library is installed in.  The slow drain only a ``share`` of the tasks, so that nobody waits
    for them, and the fast drain more, so that there is something to measure.
    """

    name: str
    title: str
    package: str
    app: str
    broker: Broker
    worker: tuple[str, ...]
    settings: str
    share: float = 1.0
    runtime: Runtime = Runtime.PEERS


def _words(*lines: str) -> tuple[str, ...]:
    return tuple(" ".join(lines).split())


_HEADRACE_WORKER: Final = _words(f"python -m headrace.cli.main work {_APPS}.headrace:app")

FILE: Final = Peer(
    name="headrace-file",
    title="Headrace, file",
    package="headrace",
    app="headrace",
    broker=brokers.headrace_file,
    worker=_HEADRACE_WORKER,
    settings="two workers on one file, no service; `headrace work` as it comes: 10 threads",
    share=2.0,
    runtime=Runtime.OURS,
)

HTTP: Final = Peer(
    name="headrace-http",
    title="Headrace, http",
    package="headrace",
    app="headrace",
    broker=brokers.headrace_http,
    worker=_HEADRACE_WORKER,
    settings="`headrace run` and two workers; `headrace work` as it comes: 10 threads",
    runtime=Runtime.OURS,
)

# In the order of their turns: those whose rates a bar compares are beside each other, so that what
# else the machine does meets both.
PEERS: Final = (
    Peer(
        name="rq-fork",
        title="RQ, forking",
        package="rq",
        app="rq",
        broker=brokers.redis,
        worker=_words("rq worker bench"),
        settings="`rq worker` as it comes: a process forked for each job",
        share=0.04,
    ),
    Peer(
        name="rq-simple",
        title="RQ, simple",
        package="rq",
        app="rq",
        broker=brokers.redis,
        worker=_words("rq worker --worker-class rq.SimpleWorker bench"),
        settings="`--worker-class rq.SimpleWorker`: jobs run in the worker",
        share=0.1,
    ),
    Peer(
        name="procrastinate",
        title="Procrastinate",
        package="procrastinate",
        app="procrastinate",
        broker=brokers.postgres,
        worker=_words(f"procrastinate --app {_APPS}.procrastinate.app worker"),
        settings="concurrency 1 (default), a plain function, LISTEN/NOTIFY",
        share=0.2,
    ),
    Peer(
        name="pgqueuer",
        title="PgQueuer",
        package="pgqueuer",
        app="pgqueuer",
        broker=brokers.postgres,
        worker=_words(f"python -m {_APPS}.pgqueuer"),
        settings="asyncpg, batches of 10 (default), jobs on the event loop, LISTEN/NOTIFY",
        share=0.2,
    ),
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
        share=0.3,
    ),
    HTTP,
    Peer(
        name="huey",
        title="Huey",
        package="huey",
        app="huey",
        broker=brokers.redis,
        worker=_words(f"huey_consumer {_APPS}.huey.huey"),
        settings="1 worker thread (default), blocking; a killed worker loses the task in hand",
        share=0.5,
    ),
    FILE,
    Peer(
        name="dramatiq",
        title="Dramatiq",
        package="dramatiq",
        app="dramatiq",
        broker=brokers.redis,
        worker=_words(f"dramatiq {_APPS}.dramatiq --processes 1"),
        settings="8 threads (default) in each process, no results; its workers fetch tasks ahead",
        share=2.0,
    ),
    Peer(
        name="bullmq",
        title="BullMQ",
        package="bullmq",
        app="bullmq",
        broker=brokers.redis,
        worker=("node", str(_FOLDER / "apps" / "bullmq.js"), "work"),
        settings="JavaScript on Node.js; concurrency 1 (default), ended jobs kept (default)",
        share=0.5,
        runtime=Runtime.NODE,
    ),
)


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the programs of the peers are, and our own."""

    peers: Path

    def need(self, peer: Peer) -> None:
        """Look whether what *peer* runs on is there.

        Raises:
            LeftOut: Node.js or the packages for it are missing.

        """
        if peer.runtime is Runtime.NODE:
            if shutil.which("node") is None:
                raise LeftOut("Node.js is missing: apt-get install nodejs npm")
            if not (_NODE_MODULES / peer.package).is_dir():
                raise LeftOut("its packages are missing: run `make bench-peers`, which needs npm")

    def version(self, peer: Peer) -> str:
        """Return the version of the peer's package that is installed."""
        if peer.runtime is Runtime.NODE:
            package = (_NODE_MODULES / peer.package / "package.json").read_text()
            return str(json.loads(package)["version"])
        code = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
        words = [self._python(peer), "-c", code, peer.package]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    def worker(self, peer: Peer, worker: int) -> list[str]:
        """Return the command line of a *worker*, the first of which is 0."""
        program, *arguments = peer.worker
        if peer.runtime is not Runtime.NODE:
            program = str(Path(self._python(peer)).parent / program)
        return [program, *(word.replace("{worker}", f"worker{worker}") for word in arguments)]

    def producer(self, peer: Peer, verb: str, count: int) -> list[str]:
        """Return the command line that does *verb*, ``fill`` or ``probe``, with *count* tasks."""
        if peer.runtime is Runtime.NODE:
            return [*peer.worker[:-1], verb, str(count)]
        module = "benchmarks.peers.produce"
        return [self._python(peer), "-m", module, peer.app, verb, str(count)]

    def _python(self, peer: Peer) -> str:
        return sys.executable if peer.runtime is Runtime.OURS else str(self.peers)
