"""Metrics as CloudWatch reads them out of a log: one line of JSON, in its embedded metric format.

A few numbers of the deployment as a whole; each queue's own are the service's business
(``/v1/queues/{queue}/stats``), because CloudWatch charges for every metric and month.
"""

import json
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from headrace.domain.transitions import Event

NAMESPACE: Final = "Headrace"
DIMENSION: Final = "Stack"

COUNT: Final = "Count"
SECONDS: Final = "Seconds"

Measured = Mapping[str, tuple[float, str]]
"""Values by name, each with its unit."""


def emit(stack: str | None, measured: Measured, now: datetime, out: TextIO | None = None) -> None:
    """Write *measured* as metrics of *stack*; nothing where there is no stack or no value."""
    if stack is None or not measured:
        return
    metrics = [{"Name": name, "Unit": unit} for name, (_, unit) in measured.items()]
    directive = {"Namespace": NAMESPACE, "Dimensions": [[DIMENSION]], "Metrics": metrics}
    line = {
        "_aws": {"Timestamp": int(now.timestamp() * 1000), "CloudWatchMetrics": [directive]},
        DIMENSION: stack,
        **{name: value for name, (value, _) in measured.items()},
    }
    print(json.dumps(line), file=out or sys.stdout, flush=True)


def of_reaper(reaped: Mapping[str, float]) -> Measured:
    """Return the metrics of a pass of the reaper.

    A pass that has not seen every queue leaves out the age of the oldest task.
    """
    taken_back = {"LeasesLapsed": (reaped["retried"] + reaped["dead_lettered"], COUNT)}
    if reaped["throttled"] or reaped["unseen"]:
        return taken_back
    return {**taken_back, "OldestReadySeconds": (reaped["oldest_ready_seconds"], SECONDS)}


def of_dispatcher(backing_off: int) -> Measured:
    """Return the metrics of the dispatcher's timer: how many targets ask for fewer requests."""
    return {"TargetsBackingOff": (backing_off, COUNT)}


def of_recorder(events: Mapping["Event", int]) -> Measured:
    """Return the metrics of a batch of the recorder: how often what happened."""
    return {event.capitalize(): (number, COUNT) for event, number in events.items()}
