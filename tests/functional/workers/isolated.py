"""Handlers for child processes that do what none should."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.client.app.app import App
from headrace.client.app.context import Context
from headrace.client.app.outcomes import Cancelled, SoftTimeLimit

LONG = 60.0

app = App()


started: list[int] = []
app.on_process_start(lambda: started.append(os.getpid()))


@app.handler(queue="apart", isolate=True)
def report_process(_payload: object) -> list[int]:
    """Return the process that this runs in, and those that the hook has noted here."""
    return [os.getpid(), *started]


@app.handler(queue="mail")
def do(ctx: Context, payload: Any) -> Any:
    """Do what the payload says."""
    return _DEEDS[payload[0]](ctx, *payload[1:])


@app.handler(queue="limited", soft_timeout=0.2, timeout=0.6)
def do_within(ctx: Context, payload: Any) -> Any:
    """Do it within limits."""
    return _DEEDS[payload[0]](ctx, *payload[1:])


@app.handler(queue="async", soft_timeout=0.2, timeout=60)
async def wait_async(payload: Any) -> Any:
    """Wait in an event loop."""
    try:
        await asyncio.sleep(payload)
    except asyncio.CancelledError:
        return "tidied"
    return os.getpid()


@app.handler(queue="async-self")
async def cancel_self(payload: str) -> str:
    """Cancel this handler, and wait or return."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    if payload == "waits":
        await asyncio.sleep(LONG)
    return payload


@app.handler(queue="async-undone")
async def undo_async(payload: str) -> None:
    """Wait in an event loop, and write down why that ends."""
    _note(payload, "begun", "")
    try:
        await asyncio.sleep(LONG)
    except asyncio.CancelledError as error:
        _note(payload, "done", type(error.args[0]).__name__)
        raise


def _note(note: str, ending: str, text: str) -> None:
    """Write *text* to a file that is there at once."""
    Path(note).write_text(text)
    Path(note).rename(f"{note}.{ending}")


def _sleep(_ctx: Context, note: str) -> str:
    """Wait in one call into C, with a process of one's own running."""
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({LONG})"])
    _note(note, "done", f"{os.getpid()} {child.pid}")
    time.sleep(LONG)
    return "never"


def _tidy(_ctx: Context) -> str:
    try:
        time.sleep(LONG)
    except SoftTimeLimit:
        return "tidied"
    return "never"


def _stubborn(_ctx: Context, note: str) -> str:
    _note(note, "begun", str(os.getpid()))
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        try:
            time.sleep(LONG)
        except (SoftTimeLimit, Cancelled):
            _note(note, "done", "")
            continue
    return "never"


def _undo(ctx: Context, note: str) -> str:
    """Wait in one call into C, and write down what comes of it."""
    _note(note, "begun", str(os.getpid()))
    try:
        time.sleep(LONG)
    except Cancelled:
        _note(note, "done", f"{ctx.cancelled} {ctx.lost}")
    return "never"


def _local(_ctx: Context) -> object:
    """A value that only this process has."""

    @dataclass
    class Local:
        here: int

    return Local(1)


def _fork(_ctx: Context, note: str) -> None:
    """Leave a process behind that holds all this one had open, and die."""
    pid = os.fork()
    if pid == 0:
        time.sleep(LONG)
        os._exit(0)
    Path(note).write_text(str(pid))
    os.kill(os.getpid(), signal.SIGKILL)


def _progress(ctx: Context) -> bool:
    ctx.progress({"half": "done"})
    return ctx.lost


_DEEDS: Final[dict[str, Callable[..., Any]]] = {
    "pid": lambda _ctx: os.getpid(),
    "exit": lambda _ctx, code: os._exit(code),
    "signal": lambda _ctx, name: os.kill(os.getpid(), getattr(signal, name)),
    "raise_signal": lambda _ctx, number: os.kill(os.getpid(), number),
    "fork": _fork,
    "raise": lambda _ctx: 1 // 0,
    "local": _local,
    "sleep": _sleep,
    "tidy": _tidy,
    "stubborn": _stubborn,
    "undo": _undo,
    "progress": _progress,
}
