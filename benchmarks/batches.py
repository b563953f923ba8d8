"""`python -m benchmarks.batches`: what a large batch costs, and how soon it calls back.

All in one process over SQLite in memory, whose units are those of tables: the tasks are enqueued,
taken and reported 25 at a time, and what the recorder writes for that is counted.  What it writes
for tasks of no batch is measured before, of fewer, and taken off.

The recorder writes the batch once a minute, and each time that it knows of no member that has not
ended, for that one may be the last: so much depends on how many wait together.

The clock stands still.  Of a million members, all in one minute, the recorder's own record passes a
kilobyte, for the histograms of that minute have numbers of more digits: two units more a write.
"""

import argparse
import json
import resource
import sys
import time
from typing import Any, Final

from headrace.domain.batch import BatchEvent, Callback
from headrace.domain.plan import TaskSpec
from headrace.store.sqlite import SqliteStore
from tests.contract.test_batches import Recorded, record_all
from tests.manual_clock import ManualClock

_CALL: Final = 25
_RECORDED: Final = 1_000  # ends, before the recorder reads them


def _live(recorded: Recorded, members: int, at_once: int, **fields: Any) -> tuple[float, float]:
    """Let so many tasks live; return the recorder's write units, and the seconds of its last."""
    units = seconds = 0.0
    for _ in range(members // at_once):
        for _ in range(at_once // _CALL):
            recorded.world.put("work", *["1"] * _CALL, **fields)
        units += record_all(recorded)
        for done in range(_CALL, at_once + 1, _CALL):
            recorded.finish(_CALL)
            if done % _RECORDED == 0 or done == at_once:
                began = time.perf_counter()
                units += record_all(recorded)
                seconds = time.perf_counter() - began
    return units, seconds


def main(arguments: list[str]) -> int:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--members", type=int, default=100_000, help="a multiple of 10,000")
    parser.add_argument("--at-once", type=int, default=10_000, help="how many wait together")
    given = parser.parse_args(arguments)
    members, at_once = given.members, given.at_once
    store = SqliteStore()
    recorded = Recorded(store, ManualClock())
    fewer = members // 10
    without, _ = _live(recorded, fewer, min(at_once, fewer))
    on = {BatchEvent.ENDED: Callback("told", TaskSpec("1"))}
    recorded.use.task_batches.create(on, batch_id="b", total=members)
    began = time.perf_counter()
    units, to_callback = _live(recorded, members, at_once, batches=("b",))
    seconds = time.perf_counter() - began
    extra = units - without * members / fewer
    batch, told = recorded.see(), recorded.told()
    print(
        json.dumps(
            {
                "members": batch.created,
                "succeeded": batch.succeeded,
                "callbacks": len(told),
                "write_units": round(extra, 1),
                "write_units_per_member": round(extra / members, 6),
                "seconds_from_the_last_end_to_the_callback": round(to_callback, 3),
                "seconds_in_all": round(seconds, 1),
                "megabytes_at_most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    )
    store.close()
    return 0 if (batch.succeeded, len(told)) == (members, 1) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
