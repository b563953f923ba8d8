"""Processes over one file, killed at any moment: what was acknowledged holds, and holds once."""

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.domain.ids import shown_lease
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State, Task
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport
from headrace.runtime.service import Service
from headrace.runtime.wiring import Settings, build
from headrace.store.sqlite import SqliteStore
from tests.manual_clock import ManualClock
from tests.waiting import until

PROCESSES = 4
AT_ONCE = RetryStrategy(Backoff.FIXED, max_retries=1000, base_seconds=0, jitter=0)


def service(path: Path, clock: ManualClock | None = None) -> tuple[Service, SqliteStore]:
    now = clock or (lambda: datetime.now(UTC))
    store = SqliteStore(str(path), now=now)
    return build(Settings(admin_key="test", poll_after_seconds=0), store, now=now), store


def live(path: Path, seen: int, seed: int) -> None:
    """Enqueue, take and finish for ever; write each acknowledgement to *seen*, line by line."""
    chance = random.Random(seed)
    use, _ = service(path)

    def note(*words: object) -> None:
        os.write(seen, (" ".join(map(str, words)) + "\n").encode())

    while True:
        specs = [TaskSpec(f'"{seed}"')] * chance.randint(1, 10)
        for new in use.tasks.enqueue("storm", specs):
            note("enqueued", new.id)
        tasks = use.deliveries.dequeue("storm", batch_size=chance.randint(1, 25)).tasks
        for task in tasks:
            note("taken", task.id, task.lease_id)
        reports = [report(task, well=chance.random() < 0.8) for task in tasks]
        for one, result in zip(reports, use.reports.report("storm", reports), strict=True):
            if result.outcome is ReportOutcome.OK:
                note(one.status, one.task_id, one.lease_id)
        if chance.random() < 0.02:
            use.reaping.run()


def report(task: Task, *, well: bool) -> TaskReport:
    status = ReportStatus.SUCCEEDED if well else ReportStatus.FAILED
    return TaskReport(task.id, str(shown_lease(task)), status)


@dataclass
class Storm:
    """Children over one file, and what each was told."""

    path: Path
    folder: Path
    children: list[int] = field(default_factory=list)
    born: int = 0

    def bear(self) -> None:
        self.born += 1
        pid = os.fork()
        if pid == 0:
            try:
                seen = os.open(self.folder / f"{self.born}.seen", os.O_CREAT | os.O_WRONLY)
                live(self.path, seen, self.born)
            except BaseException as error:  # noqa: BLE001  a child that ends by itself is a defect
                (self.folder / f"{self.born}.error").write_text(repr(error))
            finally:
                os._exit(1)
        self.children.append(pid)

    def kill(self, pid: int) -> None:
        self.children.remove(pid)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def wait_for(self, acknowledgements: int) -> None:
        """Wait until the children have heard so many more acknowledgements."""
        wanted = len(list(self.heard())) + acknowledgements
        until(lambda: len(list(self.heard())) >= wanted, 60)

    def heard(self) -> Iterator[tuple[str, str, str]]:
        """Yield (what, task, lease) of each acknowledgement that any child had."""
        for file in sorted(self.folder.glob("*.seen")):
            for line in file.read_text().splitlines():
                what, task_id, *lease = line.split(" ")
                yield what, task_id, "".join(lease)

    def errors(self) -> list[str]:
        return [file.read_text() for file in self.folder.glob("*.error")]


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_processes_killed_in_a_storm_lose_nothing_and_do_nothing_twice(
    tmp_path: Path, kills: int
) -> None:
    path, folder = tmp_path / "headrace.db", tmp_path / "seen"
    folder.mkdir()
    use, store = service(path)
    settings = QueueSettings(keepalive_timeout_in_seconds=1, retry_strategy=AT_ONCE)
    use.queues.create("storm", settings)
    store.close()
    chance, storm = random.Random(kills), Storm(path, folder)

    for _ in range(PROCESSES):
        storm.bear()
    for _ in range(kills):
        storm.wait_for(chance.randint(1, 10))
        storm.kill(chance.choice(storm.children))
        storm.bear()
    storm.wait_for(20)
    for pid in list(storm.children):
        storm.kill(pid)

    assert storm.errors() == []
    heard = list(storm.heard())
    enqueued = {task_id for what, task_id, _ in heard if what == "enqueued"}
    taken = Counter((task_id, lease) for what, task_id, lease in heard if what == "taken")
    ended = Counter(task_id for what, task_id, _ in heard if what == "SUCCEEDED")
    assert min(len(enqueued), len(ended)) > kills
    assert set(taken.values()) == {1}  # no lease was handed out twice
    assert set(ended.values()) == {1}  # none was done twice

    clock = ManualClock(datetime.now(UTC) + timedelta(seconds=60))
    use, store = service(path, clock)
    assert store.check() == ()
    there = store.read(enqueued | ended.keys())
    assert there.keys() == enqueued | ended.keys()  # history is kept
    assert {there[task_id].state for task_id in ended} <= {State.SUCCEEDED}
    attempts = Counter(task_id for task_id, _ in taken)
    assert all(there[task_id].attempts >= attempts[task_id] for task_id in there)
    finish(use, clock)
    assert {task.state for task in store.read(enqueued).values()} == {State.SUCCEEDED}
    store.close()


def finish(use: Service, clock: ManualClock) -> None:
    """Take back the leases of the killed, and do what is left."""
    idle = 0
    while idle < 3:
        use.reaping.run()
        clock.forward(2)
        tasks = use.deliveries.dequeue("storm", batch_size=25).tasks
        idle = 0 if tasks else idle + 1
        results = use.reports.report("storm", [report(task, well=True) for task in tasks])
        assert {result.outcome for result in results} <= {ReportOutcome.OK}
