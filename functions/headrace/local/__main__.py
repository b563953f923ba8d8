"""`python -m headrace.local`: the service in a terminal, until Ctrl-C or SIGTERM."""

import argparse
import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Final

from headrace import garbage
from headrace.local import (
    DataFolderInUse,
    DataFolderUnusable,
    LocalServiceError,
    ServiceUnhealthy,
)
from headrace.local.app import CONSOLE
from headrace.local.environment import settings_from
from headrace.local.folder import ADMIN_KEY_NAME, IN_MEMORY
from headrace.local.service import Service

CANNOT_START: Final = 2
UNUSABLE: Final = 6
"""The data is unusable; every command has this code for such a file."""
INTERRUPTED: Final = 130
"""Ctrl-C, or SIGTERM, before the start."""
SAY_OPTIONS: Final = "--say-options"
"""Of `headrace run`: errors name its options instead of the variables."""

_OPTIONS: Final = {
    "HEADRACE_HOST": "--host",
    "HEADRACE_PORT": "--port",
    "HEADRACE_DATA_DIR": "--data-dir",
    "HEADRACE_ADMIN_KEY": "--admin-key",
    "HEADRACE_ROOT_PATH": "--root-path",
    "HEADRACE_TRUSTED_PROXIES": "--trusted-proxies",
    "HEADRACE_INSECURE_COOKIES": "--insecure-cookies",
}
IN_CLEAR: Final = (
    "warning: the service listens on {}, and http carries keys and tasks in clear. Let only a"
    " network that you trust reach it, or put a proxy with TLS before it."
)
_SETTINGS: Final = f"Its settings are in the environment: {', '.join(_OPTIONS)} and others."
_LOOKS_EVERY_SECONDS: Final = 0.5
# A request that ignores the stop does not keep the service alive for longer.
_STOP_WITHIN_SECONDS: Final = 6.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service, and return the exit code.

    0: stopped, 2: cannot start, 6: its data is unusable, 130: interrupted before it began.
    """
    parser = argparse.ArgumentParser(
        "python -m headrace.local", description=__doc__, epilog=_SETTINGS, allow_abbrev=False
    )
    parser.add_argument(SAY_OPTIONS, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    garbage.collect_rarely()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    stop = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            # A second signal ends the process immediately, with the code of a shell for it.
            os._exit(128 + number)
        stop.set()

    for number in _stop_signals():
        signal.signal(number, on_signal)
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # `headrace run` holds it back
    if stop.is_set():
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    try:
        service = Service(settings_from())
        service.start()
    except LocalServiceError as error:
        print(refusal(error, say_options=options.say_options), file=sys.stderr)
        unusable = isinstance(error, DataFolderUnusable | ServiceUnhealthy)
        return UNUSABLE if unusable and not isinstance(error, DataFolderInUse) else CANNOT_START
    print(greeting(service, show_key=sys.stdout.isatty()), flush=True)
    if service.settings.open_to_others:
        print(IN_CLEAR.format(service.settings.host), file=sys.stderr, flush=True)
    # Python runs signal handlers in the main thread, when that executes Python code.
    while not stop.wait(_LOOKS_EVERY_SECONDS):
        pass
    force = threading.Timer(_STOP_WITHIN_SECONDS, os._exit, [0])
    force.daemon = True
    force.start()
    service.stop()
    force.cancel()
    return 0


def _stop_signals() -> list[signal.Signals]:
    numbers = [signal.SIGTERM, signal.SIGINT]
    # A terminal that closes ends the service too, unless it was started with nohup.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


def refusal(error: LocalServiceError, *, say_options: bool) -> str:
    """Return the line that says why the service cannot start, and what to set."""
    text = str(error)
    for variable, option in _OPTIONS.items() if say_options else ():
        text = text.replace(f"set {variable} to", f"say {option} with").replace(variable, option)
    return f"error: {text}"


def greeting(service: Service, *, show_key: bool) -> str:
    """Return the lines that name address, key and data of the service.

    Only a terminal shows the admin key.  Other output may go to a log that other people read, so
    it names the file of the key.
    """
    given = service.settings.admin_key is not None
    key = "HEADRACE_ADMIN_KEY" if given else str(service.folder / ADMIN_KEY_NAME)
    variable = shlex.quote(service.admin_key)
    if not show_key:
        variable = '"$HEADRACE_ADMIN_KEY"' if given else f'"$(cat {shlex.quote(key)})"'
    kept = "" if service.settings.data_dir != IN_MEMORY else ", in memory: gone when it stops"
    data = f"{service.folder}{kept}"
    if service.settings.dynamodb_url is not None:
        data = f"in DynamoDB at {service.settings.dynamodb_url}"
    return "\n".join(
        [
            "Headrace is ready.",
            f"  URL        {service.url}",
            f"  Console    {service.url}{CONSOLE}/",
            f"  Docs       {service.url}/v1/docs",
            f"  Admin key  {service.admin_key if show_key else f'in {key}'}",
            f"  Data       {data}",
            "For the SDK and the command `headrace`, in another terminal:",
            f"  export HEADRACE_URL={service.url}",
            f"  export HEADRACE_KEY={variable}",
            "Ctrl-C stops it.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
