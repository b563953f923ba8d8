"""Run what a page for people who come from a peer shows as theirs, in the peers' environment.

Their broker is one of memory, or a file.  Their program is written first, as a reader would who
copies it; then what is typed is typed in order, and a shell's line that starts a worker works off
what waits.  Exits with 1 if something else is printed than stands there.
"""

import contextlib
import doctest
import os
import re
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```(python|pycon|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+)\.py\n")
WORKER = re.compile(r"^\$ (celery -A tasks worker|rq worker|dramatiq|huey_consumer)", re.MULTILINE)


def celery(program: str) -> tuple[str, Callable[[types.ModuleType], None]]:
    """A broker in memory, whose worker is a thread and stays."""
    program = program.replace(
        'broker="redis://localhost", backend="redis://localhost"',
        'broker="memory://", backend="cache+memory://"',
    )

    def work(tasks: types.ModuleType) -> None:
        from celery.contrib.testing.worker import start_worker  # noqa: PLC0415  one peer a run

        STAYING.enter_context(start_worker(tasks.app, perform_ping_check=False))

    return program, work


def rq(program: str) -> tuple[str, Callable[[types.ModuleType], None]]:
    """A Redis in memory."""
    program = program.replace("from redis import Redis", "from fakeredis import FakeRedis as Redis")

    def work(tasks: types.ModuleType) -> None:
        from rq import SimpleWorker  # noqa: PLC0415  one peer a run

        SimpleWorker([tasks.queue], connection=tasks.queue.connection).work(burst=True)

    return program, work


def dramatiq(program: str) -> tuple[str, Callable[[types.ModuleType], None]]:
    """A broker in memory, whose worker is a thread and stays."""
    for theirs, ours in (
        ("dramatiq.brokers.redis import Redis", "dramatiq.brokers.stub import Stub"),
        ("backends import RedisBackend", "backends.stub import StubBackend"),
        ("RedisB", "StubB"),
    ):
        program = program.replace(theirs, ours)

    def work(tasks: types.ModuleType) -> None:
        from dramatiq import Worker  # noqa: PLC0415  one peer a run

        Worker(tasks.broker).start()

    return program, work


def huey(program: str) -> tuple[str, Callable[[types.ModuleType], None]]:
    """Its own storage in a file."""

    def work(tasks: types.ModuleType) -> None:
        while (task := tasks.huey.dequeue()) is not None:
            tasks.huey.execute(task)

    return program, work


STAYING = contextlib.ExitStack()
PEERS: dict[str, Callable[[str], tuple[str, Callable[[types.ModuleType], None]]]] = {
    "celery": celery,
    "rq": rq,
    "dramatiq": dramatiq,
    "huey": huey,
}


def main(page: Path) -> int:
    """Run the page's blocks; 1 if something else comes out."""
    blocks = BLOCK.findall(page.read_text())
    files: dict[str, str] = {}
    for language, code in blocks:
        if language == "python":
            found = FILE.match(code)
            assert found, code
            files[found[1]] = files.get(found[1], "") + code
    files["tasks"], work = PEERS[page.stem](files["tasks"])
    for name, code in files.items():
        Path(f"{name}.py").write_text(code)
    sys.path.insert(0, str(Path.cwd()))
    modules = {name: __import__(name) for name in files}

    typed: dict[str, Any] = {}
    failed = 0
    for language, code in blocks:
        if language == "pycon":
            runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
            test = doctest.DocTestParser().get_doctest(code, typed, page.name, None, 0)
            failed += runner.run(test, clear_globs=False).failed
            typed.update(test.globs)
        elif language == "text" and WORKER.search(code):
            work(modules["tasks"])
    return 1 if failed else 0


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        code = main(target)
        sys.stdout.flush()
        os._exit(code)  # their workers' threads stay
