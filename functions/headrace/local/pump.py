"""What Lambda's event source mapping does: feeds the stream of the tasks table to its function.

How far the stream is counted is written by the recorder itself, in the same write as the counts,
so a service that is killed goes on where it was. Under load the pump takes larger batches, and
takes them seldom: a second's delay costs nobody anything, and each batch costs a write.
"""

import importlib
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from headrace.http.events import ACCOUNT
from headrace.local.gateway import Event, Handler, InvocationContext, Stopping
from headrace.local.stream import Reader, StreamRecord
from headrace.local.tables import Function, Template

_BATCH: Final = 1000
_FEW: Final = 50
_IDLE_SECONDS: Final = 0.25
_BUSY_SECONDS: Final = 1.0
_STOP_TIMEOUT_SECONDS: Final = 5.0
_TRIES: Final = 5
_STREAM: Final = {"Fn::GetAtt": "TasksTable.StreamArn"}

_log = logging.getLogger(__name__)

Position = Callable[[str], int]


def stream_function(template: Template) -> Function | None:
    """Find the function that the template maps to the stream of the tasks table."""
    resources = template["Resources"]
    for resource in resources.values():
        mapping = resource.get("Properties", {})
        if resource["Type"] != "AWS::Lambda::EventSourceMapping":
            continue
        if mapping["EventSourceArn"] == _STREAM:
            name = mapping["FunctionName"]["Ref"]
            shared = template.get("Globals", {}).get("Function", {})
            found = {"MemorySize": 128, "Timeout": 3, **shared, **resources[name]["Properties"]}
            return Function(name, found["Handler"], found["Timeout"], found["MemorySize"])
    return None


class Pump:
    """Reads the stream and calls the function, batch after batch, in a thread of its own.

    A batch that fails comes again from where it failed; a single record that fails five times is
    logged and left out, as Lambda leaves it out when it has become too old.
    """

    def __init__(
        self,
        database: Path,
        table: str,
        function: Function,
        *,
        stopping: Stopping = lambda: False,
        busy_seconds: float = _BUSY_SECONDS,
        whole_images: bool = False,
    ) -> None:
        """Prepare; nothing is read before `start`.

        `busy_seconds` is the pause after a batch of some size, and after one that failed;
        with `whole_images` large payloads come along, for a lake that keeps them.
        """
        self._whole_images = whole_images
        self._database = database
        self._table = table
        self.function = function
        self._stopping = stopping
        self._busy_seconds = busy_seconds
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._limit = _BATCH
        self._failures = 0
        self.position: int | None = None
        """The sequence number up to which the stream is consumed; None while that is unknown."""

    def start(self, handler: Handler, position: Position) -> None:
        """Begin with calling `handler`; `position` tells how far it has consumed a shard."""
        run = (handler, position)
        self._thread = threading.Thread(target=self._run, args=run, name="pump", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take no more batches, and wait up to five seconds for the one under way."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT_SECONDS)

    def consumed(self) -> dict[str, int]:
        """Tell for the table how far its stream may be trimmed."""
        return {self._table: -1 if self.position is None else self.position}

    def _run(self, handler: Handler, position: Position) -> None:
        while not self._ended.is_set():
            try:
                with Reader(self._database, self._table, whole=self._whole_images) as reader:
                    self._pump(reader, handler, position)
            except Exception:  # noqa: BLE001 (the process edge: logged, and the pump goes on)
                _log.exception("The stream cannot be read; it is tried again")
                self._ended.wait(self._busy_seconds)

    def _pump(self, reader: Reader, handler: Handler, position: Position) -> None:
        while not self._ended.is_set():
            pause = _IDLE_SECONDS
            shard = reader.shard()
            if shard is not None:
                if self.position is None:
                    self.position = position(shard)
                records, more = reader.after(self.position, self._limit)
                taken = not records or self._deliver(shard, records, handler)
                if taken and more:
                    continue
                if not taken or len(records) > _FEW:
                    pause = self._busy_seconds
            self._ended.wait(pause)

    def _deliver(self, shard: str, records: list[StreamRecord], handler: Handler) -> bool:
        """Call the function with a batch; tell whether it is over with."""
        first, last = _sequence(records[0]), _sequence(records[-1])
        try:
            context = InvocationContext(self.function, self._stopping)
            answer = handler(_window_event(shard, records), context)
            failed = [int(each["itemIdentifier"]) for each in answer["batchItemFailures"]]
        except Exception:  # noqa: BLE001 (the process edge: logged, and the pump goes on)
            _log.exception("%s failed; it is called again", self.function.handler)
            return self._halve(len(records), first)
        self.position = min(failed) - 1 if failed else last
        self._limit, self._failures = min(_BATCH, 2 * self._limit), 0
        return not failed

    def _halve(self, count: int, first: int) -> bool:
        """Try less at a time, until the record is found that cannot be taken at all."""
        self._limit = max(1, count // 2)
        self._failures += count == 1
        if self._failures < _TRIES:
            return False
        _log.error("Record %s of the stream is left out", first)
        self.position, self._failures = first, 0
        return True


def counted(shard: str) -> int:
    """Tell how far the recorder has counted a shard, as it wrote down itself."""
    # The handlers' own package is found through their folder, and reads the environment.
    wiring = importlib.import_module("headrace.runtime.wiring")
    position: int = wiring.use_cases().recording.position(shard)
    return position


def _sequence(record: StreamRecord) -> int:
    return int(record["dynamodb"]["SequenceNumber"])


def _window_event(shard: str, records: list[StreamRecord]) -> Event:
    """Make the event that Lambda sends for a mapping with a tumbling window."""
    now = datetime.now(UTC)
    event: dict[str, Any] = {
        "Records": records,
        "window": {"start": _instant(now.replace(minute=0)), "end": _instant(now)},
        "state": {},
        "shardId": shard,
        "eventSourceARN": f"arn:aws:dynamodb:us-east-1:{ACCOUNT}:table/tasks/stream/local",
        "isFinalInvokeForWindow": False,
        "isWindowTerminatedEarly": False,
    }
    return event


def _instant(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:00Z")
