"""The local service as a child process, for tests, demo and benchmarks."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.local import LocalServiceError
from headrace.local.folder import DATABASE_NAME, IN_MEMORY

_START_TIMEOUT_SECONDS: Final = 60.0
_STOP_TIMEOUT_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Launched:
    """A service that is ready; `data` is the folder of its file.

    With an endpoint of DynamoDB, `data` is not a folder.
    """

    url: str
    admin_key: str
    data: str
    process: subprocess.Popen[bytes]
    output: Path

    @property
    def file_url(self) -> str:
        """The URL of its file, for programs beside the service."""
        return f"file:{self.data}/{DATABASE_NAME}"

    @property
    def pid(self) -> int:
        """Process id of the service."""
        return self.process.pid

    def stop(self) -> int:
        """End the service with SIGTERM, and return its exit code.  May be repeated."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """End the service with SIGKILL, like a crash, and return its exit code."""
        return self._end(signal.SIGKILL)

    def errors(self) -> str:
        """Return its stderr so far."""
        return (self.output / "stderr").read_text(errors="replace")

    def _end(self, number: signal.Signals) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(_STOP_TIMEOUT_SECONDS)


class LaunchFailed(LocalServiceError):
    """The service ended, or did not become ready; the text is its stderr."""

    def __init__(self, text: str, exit_code: int | None = None) -> None:
        super().__init__(text)
        self.exit_code = exit_code


@contextlib.contextmanager
def launched(
    *,
    data_dir: str | Path = IN_MEMORY,
    port: int = 0,
    admin_key: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Launched]:
    """Run a service for the length of a with block; port 0 is any free one.

    `environment` is added to that of this process, without its HEADRACE_ settings.

    Raises:
        LaunchFailed: it did not become ready.

    """
    variables = {key: text for key, text in os.environ.items() if not key.startswith("HEADRACE_")}
    variables |= environment or {}
    variables["HEADRACE_PORT"] = str(port)
    # The child works in the project's folder, so a relative path would mean another one there.
    kept_nowhere = str(data_dir) == IN_MEMORY
    variables["HEADRACE_DATA_DIR"] = IN_MEMORY if kept_nowhere else str(Path(data_dir).absolute())
    if admin_key is not None:
        variables["HEADRACE_ADMIN_KEY"] = admin_key
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder)
        process = _spawn(variables, output)
        try:
            key = variables.get("HEADRACE_ADMIN_KEY")
            service = _wait_until_ready(process, output, key)
            yield service
            service.stop()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _spawn(variables: Mapping[str, str], output: Path) -> subprocess.Popen[bytes]:
    # Files, because a full pipe would stop the service.
    with (output / "stdout").open("wb") as out, (output / "stderr").open("wb") as err:
        return subprocess.Popen(
            [sys.executable, "-m", "headrace.local"],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )


def _wait_until_ready(
    process: subprocess.Popen[bytes], output: Path, admin_key: str | None
) -> Launched:
    deadline = time.monotonic() + _START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        text = (output / "stdout").read_text()
        if "Ctrl-C stops it." in text:
            values = dict(re.findall(r"^  (\w[\w ]*?)  +(\S.*)$", text, flags=re.MULTILINE))
            return Launched(
                url=values["URL"],
                admin_key=admin_key
                or Path(values["Admin key"].removeprefix("in ")).read_text().strip(),
                data=values["Data"].partition(", ")[0],
                process=process,
                output=output,
            )
        if ended:
            words = (output / "stderr").read_text(errors="replace").strip()
            raise LaunchFailed(words, process.returncode)
        time.sleep(_POLL_SECONDS)
    raise LaunchFailed(f"The service was not ready within {_START_TIMEOUT_SECONDS:g} seconds.")
