"""A PostgreSQL server of a test's own, where its programs are on this machine."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

_DEBIAN: Final = Path("/usr/lib/postgresql")
_UNPRIVILEGED: Final = ("postgres", "nobody")
_START_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05


def postgres_folder() -> Path | None:
    """Return where initdb and postgres are, Debian's newest before the path's; None: nowhere."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    versions = [path for path in _DEBIAN.glob("*/bin") if (path / "initdb").exists()]
    folders += sorted(versions, key=lambda path: float(path.parent.name))
    return folders[-1] if folders else None


@contextmanager
def postgres(programs: Path) -> Iterator[str]:
    """Run a server for this machine alone, in a folder of its own; yields its URL."""
    with TemporaryDirectory(prefix="postgres-") as name:
        yield from _run(programs, Path(name))


def _run(programs: Path, folder: Path) -> Iterator[str]:
    user = unprivileged_user(folder)
    data = folder / "data"
    subprocess.run(
        [programs / "initdb", "-D", data, "-A", "trust", "-U", "shop", "--no-sync", "-E", "UTF8"],
        user=user,
        cwd=folder,
        check=True,
        capture_output=True,
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    settings = {"listen_addresses": "127.0.0.1", "fsync": "off", "unix_socket_directories": ""}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, "-p", str(port), *options],
            user=user,
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    try:
        _wait_for(port, server, folder / "log")
        yield f"postgresql+psycopg://shop@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)  # which does not wait for clients
        server.wait(timeout=_START_SECONDS)


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        if b"ready to accept connections" in log.read_bytes():
            return
        time.sleep(_POLL_SECONDS)
    raise RuntimeError(f"PostgreSQL on port {port} did not start: {log.read_text()}")


def unprivileged_user(folder: Path) -> int | None:
    """Give *folder* to a user that PostgreSQL runs as; None: ours will do."""
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED:
        try:
            user = pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
        os.chown(folder, user, -1)
        return user
    raise RuntimeError("PostgreSQL refuses to run as root, and there is no other user")
