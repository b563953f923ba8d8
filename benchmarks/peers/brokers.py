"""What the peers keep their tasks in, each new and empty, and each made to sync every write.

A broker is a context manager of a folder; it gives what workers and producers need to know, as
environment variables.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from infra.launch import launched
from tests.postgres import postgres_folder, unprivileged_user

Environment = dict[str, str]
Broker = Callable[[Path], AbstractContextManager[Environment]]

_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02


class LeftOut(Exception):
    """A peer cannot be measured here; the text says what is missing or went wrong."""


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[Environment]:
    """Run a Redis whose log of writes is synced before each answer.

    Raises:
        LeftOut: it is not installed, or did not start.

    """
    program = shutil.which("redis-server")
    if program is None:
        raise LeftOut("redis-server is missing: apt-get install redis-server")
    port = free_port()
    settings = {
        "port": str(port),
        "bind": "127.0.0.1",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "always",
        "save": "",
    }
    arguments = [word for name, value in settings.items() for word in (f"--{name}", value)]
    with _running([program, *arguments], folder, "Ready to accept connections"):
        url = f"redis://127.0.0.1:{port}/0"
        yield {"PEERS_BROKER": url, "RQ_REDIS_URL": url}  # the latter is what `rq` reads


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[Environment]:
    """Run a PostgreSQL cluster of its own as it comes, which syncs every commit.

    Raises:
        LeftOut: it is not installed, or did not start.

    """
    bin_folder = postgres_folder()
    if bin_folder is None:
        raise LeftOut("PostgreSQL is missing: apt-get install postgresql")
    user = unprivileged_user(folder)
    data = folder / "data"
    words = [str(bin_folder / "initdb"), "-D", str(data), "-A", "trust", "-U", "bench"]
    made = subprocess.run(
        [*words, "--no-sync", "-E", "UTF8", "--locale=C"],
        user=user,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise LeftOut(f"initdb: {_last_line(made.stderr)}")
    port = free_port()
    command = [str(bin_folder / "postgres"), "-D", str(data), "-p", str(port), "-k", str(folder)]
    with _running(
        [*command, "-c", "listen_addresses=127.0.0.1"],
        folder,
        "ready to accept connections",
        user=user,
    ):
        yield {"PEERS_BROKER": f"postgresql://bench@127.0.0.1:{port}/postgres"}


@contextlib.contextmanager
def headrace_file(folder: Path) -> Iterator[Environment]:
    """Name a file that the first program makes; nothing runs besides producers and workers."""
    yield {"HEADRACE_URL": f"file:{folder / 'headrace.db'}"}


@contextlib.contextmanager
def headrace_http(folder: Path) -> Iterator[Environment]:
    """Run the local service as `headrace run` does, with its data on disk."""
    with launched(data_dir=folder / "data", port=0) as service:
        yield {"HEADRACE_URL": service.url, "HEADRACE_KEY": service.admin_key}


def versions() -> dict[str, str]:
    """The versions of the brokers and runtimes that are here."""
    bin_folder = postgres_folder()
    programs = {
        "Redis": shutil.which("redis-server"),
        "PostgreSQL": bin_folder and str(bin_folder / "postgres"),
        "Node.js": shutil.which("node"),
    }
    found = {}
    for name, program in programs.items():
        if program:
            words = [program, "--version"]
            text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            number = re.search(r"\d+(\.\d+)+", text)
            found[name] = number[0] if number else text.strip()
    return found


def free_port() -> int:
    """Return a TCP port that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@contextlib.contextmanager
def _running(
    command: Sequence[str], folder: Path, ready: str, *, user: int | None = None
) -> Iterator[None]:
    """Run a server until the block ends; its log says when it is *ready*."""
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            user=user,
            env=os.environ | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us: we end it once its workers are gone
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while ready not in log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                words = _last_line(log.read_text(errors="replace"))
                raise LeftOut(f"{Path(command[0]).name} did not start: {words}")
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "no word"
