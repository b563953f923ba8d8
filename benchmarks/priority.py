"""`python -m benchmarks.priority`: what a priority does and takes, with many tasks waiting.

In one process over SQLite in memory, whose units are those of tables: again and again a high task
comes behind the normal ones that wait, and one task is taken.  The same is done in a queue without
priorities, whose dequeues are what the others are compared with.
"""

import argparse
import json
import statistics
import sys
import time
from typing import Final

from headrace.domain.queue_settings import PrioritySettings
from headrace.domain.task import Priority
from headrace.store.call_scope import metered
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import new_world
from tests.manual_clock import ManualClock

_CALL: Final = 25
_AGING: Final = 300.0


def _take(waiting: int, times: int, priority: Priority | None) -> tuple[int, float, float]:
    """Return how often the new one was the next, and read units and CPU of a dequeue."""
    world = new_world(SqliteStore(), ManualClock())
    world.queue("mail", priority=PrioritySettings(_AGING) if priority else None)
    for _ in range(waiting // _CALL):
        world.put("mail", *["1"] * _CALL)
    first, reads, seconds = 0, 0.0, []
    for _ in range(times):
        world.clock.forward(0.001)
        (new,) = world.put("mail", "2", priority=priority)
        world.clock.forward(0.001)
        began = time.thread_time()
        with metered() as cost:
            (task,) = world.use.deliveries.dequeue("mail").tasks
        seconds.append(time.thread_time() - began)
        reads += cost.read
        first += task.id == new
    return first, reads / times, statistics.median(seconds)


def main(arguments: list[str]) -> int:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--waiting", type=int, default=10_000, help="normal tasks")
    parser.add_argument("--times", type=int, default=200, help="high tasks")
    given = parser.parse_args(arguments)
    first, reads, seconds = _take(given.waiting, given.times, Priority.HIGH)
    _, plain_reads, plain_seconds = _take(given.waiting, given.times, None)
    print(
        json.dumps(
            {
                "waiting": given.waiting,
                "high": given.times,
                "of_them_next": first,
                "read_units_of_a_dequeue": [plain_reads, reads],
                "cpu_ms_of_a_dequeue_p50": [
                    round(1000 * one, 3) for one in (plain_seconds, seconds)
                ],
            }
        )
    )
    return 0 if first == given.times else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
