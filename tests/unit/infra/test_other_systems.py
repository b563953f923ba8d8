"""What cannot be tried here, Windows and macOS, finds nothing imported that is not there.

A Python is made to lack what Windows lacks, once the standard library is loaded; then everything
that a person installs is imported.  Whether it works there is another question.
"""

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, importlib, multiprocessing.connection, os, pkgutil, platform, signal, socket
import subprocess, sys, tempfile, threading

import aws_lambda_powertools.event_handler, boto3, chalice.app, click, httpx2, jinja2, rich.console

for module in ("fcntl", "grp", "pwd", "resource", "termios", "tty"):
    sys.modules[module] = None
for name in ("SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD"):
    delattr(signal, name)
for name in ("fork", "getpgrp", "getuid", "killpg", "register_at_fork", "setsid"):
    delattr(os, name)
sys.platform = "win32"
sys.modules["msvcrt"] = type(sys)("msvcrt")

import headrace

found = [
    name
    for _, name, _ in pkgutil.walk_packages(headrace.__path__, "headrace.")
    if not name.endswith("__main__")
    and not name.startswith(("headrace.spark", "headrace.outbox.django"))  # have needs of their own
]
for name in found:
    importlib.import_module(name)
print(len(found))
"""


@pytest.mark.slow
def test_nothing_imports_what_windows_does_not_have() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False
    )

    assert ran.stderr == ""
    assert int(ran.stdout) > 200
