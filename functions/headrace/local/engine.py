"""The embedded DynamoDB engine (dynoxide): where its binary is, starting it, stopping it."""

import contextlib
import http.client
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.local import EngineFailed, EngineMissing, UnsupportedPlatform

PROJECT_ROOT: Final = Path(__file__).resolve().parents[3]
HOST: Final = "127.0.0.1"
_DATABASE: Final = "engine.db"

# The Linux binaries are static, so glibc and musl systems share them.
_PLATFORMS: Final = {
    ("linux", "x86_64"): "linux-x64",
    ("linux", "amd64"): "linux-x64",
    ("linux", "aarch64"): "linux-arm64",
    ("linux", "arm64"): "linux-arm64",
    ("darwin", "x86_64"): "darwin-x64",
    ("darwin", "arm64"): "darwin-arm64",
    ("win32", "amd64"): "win32-x64",
}
_START_TIMEOUT_SECONDS: Final = 20.0
_STOP_TIMEOUT_SECONDS: Final = 5.0
_LEAST_FREE_BYTES: Final = 1024 * 1024
_POLL_SECONDS: Final = 0.005
_PORT_TRIES: Final = 5
_OTHER_ENDPOINT: Final = "set HEADRACE_DYNAMODB_URL to a DynamoDB-compatible endpoint"

DIE_WITH_PARENT: Final = """
import ctypes, os, signal, sys
parent, *command = sys.argv[1:]
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(parent):  # it may have died before the signal was set
    os.execv(command[0], command)
"""
"""Becomes a program that is killed when the parent's thread ends (Linux): PARENT COMMAND ARG...

A program of its own, because a hook between fork and exec is unsafe in a process that has threads,
and Python 3.12 warns about it.
"""


@dataclass(frozen=True, slots=True)
class Engine:
    """A running engine; `url` is its DynamoDB endpoint, `database` its SQLite file."""

    url: str
    database: Path
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Process id of the engine itself, not of a wrapper."""
        return self.process.pid

    def is_running(self) -> bool:
        """Tell whether the engine has not ended."""
        return self.process.poll() is None

    def stop(self) -> None:
        """Ask the engine to end, and end it by force after five seconds. May be repeated."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def find_binary(
    root: Path = PROJECT_ROOT,
    *,
    system: str = sys.platform,
    machine: str | None = None,
) -> Path:
    """Path of the engine's binary under `root`/node_modules.

    Raises:
        UnsupportedPlatform: the engine is not published for this machine.
        EngineMissing: it is, but is not installed; says whether Node is missing too.

    """
    machine = (machine or platform.machine()).lower()
    package = _PLATFORMS.get((system, machine))
    if package is None:
        raise UnsupportedPlatform(
            f"The embedded engine has no build for {system} on {machine}: {_OTHER_ENDPOINT}."
        )
    name = "dynoxide.exe" if system == "win32" else "dynoxide"
    binary = root / "node_modules" / "@dynoxide" / package / name
    if binary.is_file():
        return binary
    if shutil.which("npm") is None:
        raise EngineMissing(
            "The embedded engine comes from npm, which is missing: install Node.js 18 or newer"
            f" and run `npm ci`, or {_OTHER_ENDPOINT}."
        )
    raise EngineMissing(
        f"The embedded engine is not installed: run `{_install_command(root, package)}`,"
        f" or {_OTHER_ENDPOINT}."
    )


def _install_command(root: Path, package: str) -> str:
    """Tell how to install the engine: package.json need not list every platform's package."""
    try:
        pinned = json.loads((root / "package.json").read_text(encoding="utf-8"))
        versions = pinned["optionalDependencies"]
    except (OSError, ValueError, KeyError):
        versions = {}
    name = f"@dynoxide/{package}"
    if name in versions or not versions:
        return "npm ci"
    return f"npm install --no-save {name}@{next(iter(versions.values()))}"


def start_engine(folder: Path, *, binary: Path | None = None) -> Engine:
    """Start an engine on a free port with its database in `folder`, and wait until it answers.

    On Linux the engine dies with the thread that called this, so call it from one that lives as
    long as the engine should; on other systems what a killed service leaves behind is ended by
    `headrace.local.folder` at the next start.

    Raises:
        UnsupportedPlatform: see `find_binary`.
        EngineMissing: see `find_binary`.
        EngineFailed: it ended by itself or did not answer; carries its last words.

    """
    binary = binary or find_binary()
    database = folder / _DATABASE
    log = folder / "engine.log"
    for tries_left in reversed(range(_PORT_TRIES)):
        port = free_port()
        engine = Engine(f"http://{HOST}:{port}", database, _spawn(binary, port, database, log))
        try:
            _wait_until_ready(engine, port, log)
        except EngineFailed as error:
            engine.stop()
            # Someone else may take the port between choosing it and listening on it.
            if "in use" in str(error) and tries_left:
                continue
            raise
        except BaseException:
            engine.stop()
            raise
        return engine
    raise EngineFailed("The embedded engine found no free port.")


@contextlib.contextmanager
def running_engine(folder: Path, *, binary: Path | None = None) -> Iterator[Engine]:
    """Run an engine with its database in `folder` for the length of a with block."""
    engine = start_engine(folder, binary=binary)
    try:
        yield engine
    finally:
        engine.stop()


def free_port() -> int:
    """Find a TCP port of this machine's loopback address that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _spawn(binary: Path, port: int, database: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [str(binary), "serve", "--host", HOST, "--port", str(port)]
    command += ["--db-path", str(database)]
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", "-c", DIE_WITH_PARENT, str(os.getpid()), *command]
    try:
        with log.open("wb") as output:
            # A session of its own: Ctrl-C in a terminal must reach the service alone, which
            # still needs its engine to finish the requests under way.
            return subprocess.Popen(  # noqa: S603 (no shell, and every part of it is ours)
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
    except OSError as error:
        raise EngineFailed(
            f"The embedded engine cannot be started ({error}): run `npm ci` again."
        ) from error


def _wait_until_ready(engine: Engine, port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if engine.process.poll() is not None:
            raise EngineFailed(f"The embedded engine ended at once: {_why(log)}")
        if _answers(port):
            return
        time.sleep(_POLL_SECONDS)
    raise EngineFailed(
        f"The embedded engine did not answer within {_START_TIMEOUT_SECONDS:g} seconds."
    )


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=1.0)
    try:
        connection.request("GET", "/")
        server = connection.getresponse().getheader("server", "")
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    # Not whoever else may have taken the port in between.
    return server.startswith("Dynoxide")


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "it said nothing")


def _why(log: Path) -> str:
    """Say why the engine ended: it cannot say so itself on a disk that has no room for its log."""
    free = shutil.disk_usage(log.parent).free
    if free < _LEAST_FREE_BYTES:
        return f"the disk of {log.parent} is full ({free:,} bytes free); make room, or name another"
    return _last_line(log)
