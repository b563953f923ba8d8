"""`python -m benchmarks.profile`: where the CPU of a task's life goes over a file, stage by stage.

One process brings tasks through their lives by the SDK, in batches of 25, and the recorder counts
them; a profiler of CPU time runs in it and in the thread that writes the file.  It makes small
functions look dearer than they are, so the shares say where to look, not what it takes.
"""

import cProfile
import pstats
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from benchmarks.sizes import BATCH
from headrace import Client
from headrace.client.sending import NewTask, Report
from headrace.client.worker.service import WorkerService
from headrace.domain.ids import new_idempotency_key
from headrace.embedded.service import EmbeddedService, close_all, opened
from headrace.embedded.timers import LogRecorder, file_store

QUEUE: Final = "profile"
TASKS: Final = 2_000
STAGES: Final = {
    "SDK and HTTP's forms": ("headrace/client", "headrace/embedded", "httpcore2", "httpx2"),
    "routes and checks of bodies": ("headrace/http", "aws_lambda_powertools", "pydantic"),
    "use cases": ("headrace/ops", "headrace/runtime"),
    "rules": ("headrace/domain", "/dataclasses.py"),
    "store": ("headrace/store", "sqlite3"),
    "answers": ("headrace/wire", "msgspec", "/json/"),
    "recorder": ("headrace/history",),
}
"""By a part of a function's name or place; the first that fits."""


def main() -> None:
    """Profile, and print a table."""
    with tempfile.TemporaryDirectory() as folder:
        with Client(f"file:{Path(folder) / 'headrace.db'}") as client:
            client.create_queue(QUEUE)
            service = opened(client.settings.address)  # type: ignore[arg-type]  # a file, as above
            _lives(client, service, BATCH)  # what is made once is made
            here, writer = (cProfile.Profile(time.thread_time) for _ in range(2))
            database = file_store(service)._db  # noqa: SLF001  the way into its thread
            database.write(lambda _: writer.enable())
            here.enable()
            _lives(client, service, TASKS)
            here.disable()
            database.write(lambda _: writer.disable())
        close_all()
    stages = _stages(pstats.Stats(here, writer))
    total = sum(stages.values())
    print("| stage | CPU ms per 1,000 tasks | share |\n|---|---|---|")
    for stage, seconds in stages.most_common():
        print(f"| {stage} | {seconds / TASKS * 1e6:.0f} | {seconds / total:.0%} |")


def _lives(client: Client, service: EmbeddedService, tasks: int) -> None:
    worker = WorkerService(client)
    for _ in range(0, tasks, BATCH):
        client.enqueue_many(QUEUE, [NewTask(payload={"number": n}) for n in range(BATCH)])
        found = worker.dequeue(
            [QUEUE],
            batch_size=BATCH,
            wait_seconds=0,
            worker="profile:1",
            lease_seconds=None,
            key=new_idempotency_key(),
            attempt=1,
        )
        client.report(QUEUE, [Report.on(task, "SUCCEEDED") for task in found.tasks])
    recorder = LogRecorder(service.use, file_store(service))
    while recorder.step() == 0.0:
        pass


def _stages(stats: pstats.Stats) -> Counter[str]:
    stages: Counter[str] = Counter()
    found: dict[tuple[str, int, str], Any] = vars(stats)["stats"]
    for (path, _, name), (_, _, seconds, *_) in found.items():
        where = f"{path} {name}"
        fits = (stage for stage, parts in STAGES.items() if any(part in where for part in parts))
        stages[next(fits, "all else")] += seconds
    return stages


if __name__ == "__main__":
    main()
