"""`python -m benchmarks.restart FOLDER`: 50,000 dead tasks restarted by the console, and a kill.

The folder is new.  Somebody looks at what a restart would take and confirms it, as a browser does,
and asks for no page any more.  When a third is done the service is killed, and another one over the
same file goes on.  At the end each task waits again, and the audit has one entry.

Exit status: 0 it is so, 1 it is not.
"""

import argparse
import html
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from benchmarks.console import Visitor
from benchmarks.crowd import BATCH, let_die, put
from headrace.client.client import Client
from headrace.wire.actions import ActionSeen
from infra.launch import launched

_KEY: Final = "a-key-for-the-restart-alone"
_QUEUE: Final = "restarts"
_LOOK_EVERY: Final = 0.5  # seconds


def main() -> int:
    """Let them die, restart them, kill the service, and look at what has become of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the tasks are put")
    parser.add_argument("--tasks", type=int, default=50_000)
    given = parser.parse_args()
    with launched(data_dir=given.folder, admin_key=_KEY) as service:
        with Client(service.file_url, _KEY) as client:
            client.create_queue(_QUEUE, retry_strategy={"max_retries": 0, "kind": "fixed"})
            for _ in range(0, given.tasks, BATCH):
                put(client, _QUEUE)
                let_die(client, _QUEUE, "a")
        began = time.monotonic()
        name = _confirmed(service.url)
        confirmed = time.monotonic()
        _say(f"dry run and confirmation: {confirmed - began:.1f} s")
        with Client(service.url, _KEY) as client:
            seen = _awaited(client, name, lambda one: one.done >= given.tasks / 3)
        service.kill()
        killed = time.monotonic()
        _say(f"{seen.done:,} done after {killed - confirmed:.1f} s, then killed")
    with (
        launched(data_dir=given.folder, admin_key=_KEY) as service,
        Client(service.url, _KEY) as client,
    ):
        before = seen.done
        seen = _awaited(client, name, lambda one: one.done > before or one.status == "DONE")
        _say(f"goes on {time.monotonic() - killed:.1f} s after the kill")
        seen = _awaited(client, name, lambda one: one.status in {"DONE", "CANCELLED"})
        _say(f"over {time.monotonic() - confirmed:.1f} s after the confirmation")
        waiting = client.count_tasks(_QUEUE, state="READY").count
        entries = [
            (one.matched, one.changed, one.reason)
            for one in client.list_audit(queue=_QUEUE, action="restart")
        ]
    _say(f"{waiting:,} wait again; the audit has {entries}")
    meant = (given.tasks, given.tasks, "the provider is back")
    return 0 if (waiting, entries) == (given.tasks, [meant]) else 1


def _confirmed(url: str) -> str:
    """Confirm a restart of all dead tasks; return the name of the action."""
    with Visitor(url, _KEY) as visitor:
        asked = f"/console/queues/{_QUEUE}"
        page = visitor.get(f"{asked}?state=DEAD").decode()
        [token, *_] = re.findall(r'name="token" value="([^"]+)"', page)
        place = visitor.post(
            f"{asked}/matching?state=DEAD", [("token", token), ("action", "restart")]
        )
        while True:
            page = visitor.get(place).decode()
            on = re.search(r'http-equiv="refresh" content="0; url=([^"]+)"', page)
            if on is None:
                break
            place = html.unescape(on[1])
        fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page)
        chosen = [("do", "all"), ("reason", "the provider is back")]
        done = visitor.post(urlsplit(place).path, [*fields, *chosen])
        return urlsplit(done).path.rpartition("/")[2]


def _awaited(client: Client, name: str, holds: Callable[[ActionSeen], bool]) -> ActionSeen:
    while not holds(seen := client.get_action(name)):
        time.sleep(_LOOK_EVERY)
    return seen


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
