"""Metrics in CloudWatch's embedded metric format: lines of JSON in the log.

They are a few numbers of the deployment as a whole, and of each station.  The numbers of each queue
are only in the API, because CloudWatch charges for every metric and month.  The format is described
in the CloudWatch user guide, "Specification: Embedded metric format".
"""

import json
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.domain.transitions import Event

NAMESPACE: Final = "Headrace"
STACK: Final = "Stack"
STATION: Final = "Station"

COUNT: Final = "Count"
SECONDS: Final = "Seconds"

Measured = Mapping[str, tuple[float, str]]
"""Values by name, each with its unit."""


def emit(name: str | None, measured: Measured, now: datetime, *, dimension: str = STACK) -> None:
    """Print *measured* as metrics of the stack or station *name*; print nothing without a name."""
    if name is None or not measured:
        return
    metrics = [{"Name": key, "Unit": unit} for key, (_, unit) in measured.items()]
    directive = {"Namespace": NAMESPACE, "Dimensions": [[dimension]], "Metrics": metrics}
    line = {
        "_aws": {"Timestamp": int(now.timestamp() * 1000), "CloudWatchMetrics": [directive]},
        dimension: name,
        **{key: value for key, (value, _) in measured.items()},
    }
    sys.stdout.write(f"{json.dumps(line)}\n")
    sys.stdout.flush()


def of_reaper(reaped: Mapping[str, float]) -> Measured:
    """Return the metrics of a pass of the reaper.

    A pass that has not seen every queue leaves out the age of the oldest task.
    """
    taken_back = {"LeasesLapsed": (reaped["retried"] + reaped["dead_lettered"], COUNT)}
    if reaped["throttled"] or reaped["unseen"]:
        return taken_back
    return {**taken_back, "OldestReadySeconds": (reaped["oldest_ready_seconds"], SECONDS)}


def of_dispatcher(backing_off: int) -> Measured:
    """Return the metrics of the dispatcher: the number of targets that ask for fewer requests."""
    return {"TargetsBackingOff": (backing_off, COUNT)}


def of_recorder(events: Mapping["Event", int]) -> Measured:
    """Return the metrics of a batch of the recorder: the number of each event."""
    return {event.capitalize(): (number, COUNT) for event, number in events.items()}
