"""Services with memories of their own over one store, and workers that ask them, on one clock."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.domain.change import Done
from headrace.domain.lifecycle import Action
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import Task
from headrace.domain.worker import WorkerHeartbeat
from headrace.ops.delivery.dequeue import DequeueResult
from headrace.ops.delivery.reports import ReportStatus, TaskReport
from headrace.runtime.service import Service
from headrace.runtime.wiring import Settings, build
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import lease_name
from tests.simulation.stage import Stage
from tests.wrapped_store import WrappedStore


@dataclass
class Claims:
    """How many claims were tried, how many came too late, and which tasks were won in order."""

    tried: int = 0
    lost: int = 0
    won: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.lost / max(1, self.tried)


class Distant:
    """Lets each call take 3 to 12 ms, so that an answer is old when it comes; counts claims."""

    def __init__(self, stage: Stage, claims: Claims) -> None:
        self.stage, self.claims = stage, claims

    def __call__(self, name: str, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if name not in ("entries", "record", "records", "read", "commit") or given == ([],):
            return call(*given, **named)
        self.wait()
        answer = call(*given, **named)
        self.wait()
        if name == "commit":
            for change, outcome in zip(given[0], answer, strict=True):
                if change.rule.action is Action.DEQUEUE:
                    self.count(outcome)
        return answer

    def count(self, outcome: Any) -> None:
        self.claims.tried += 1
        if isinstance(outcome, Done):
            self.claims.won.append(outcome.task.id)
        else:
            self.claims.lost += 1

    def wait(self) -> None:
        self.stage.sleep(self.stage.chance.uniform(0.003, 0.012) / 2)


class Fleet:
    """So many services over one store, workers that ask them, and what became of it.

    Worker *n* asks the *n*-th service, or the only one.
    """

    def __init__(
        self,
        services: int,
        *,
        shards: int = 1,
        seed: int = 1,
        workers: int | None = None,
        **settings: Any,
    ) -> None:
        self.seed = seed
        self.stage = Stage(random.Random(seed))
        self.claimed = Claims()
        self.taken: list[str] = []
        self.taken_at: dict[str, float] = {}
        self.ages: list[float] = []  # of tasks when they were taken, seconds
        self.waited: list[float] = []  # of each call, seconds
        self.made = 0
        store = SqliteStore(":memory:")
        self._near = self._service(store)
        far = WrappedStore(store, Distant(self.stage, self.claimed))
        self._services = [self._service(far) for _ in range(services)]
        self._names = [f"host-{self._number():08x}" for _ in range(workers or services)]
        self._near.queues.create("mail", QueueSettings(shards=shards, **settings))

    def _number(self) -> int:
        return self.stage.chance.getrandbits(32)

    def _service(self, store: Any) -> Service:
        settings, chance = Settings(admin_key="test"), random.Random(self._number())
        use = build(settings, store, now=self.stage.now, random=chance)
        use.sleep = self.stage.sleep
        return use

    def heartbeat(self, places: Iterable[int] | None = None) -> None:
        """Send the heartbeat of the workers at *places*, or of all."""
        for place in range(len(self._names)) if places is None else places:
            heartbeat = WorkerHeartbeat(self._names[place], ("mail",), self.stage.now())
            self._near.workers.alive(heartbeat)

    def enqueue(self, count: int, **fields: Any) -> list[str]:
        tasks = [
            TaskSpec("{}", id=f"task-{self.seed}-{self.made + number}", **fields)
            for number in range(count)
        ]
        for first in range(0, count, 25):
            self._near.tasks.enqueue("mail", tasks[first : first + 25])
            self.stage.sleep(0.001)  # the next call comes behind
        self.made += count
        return [str(task.id) for task in tasks]

    def play(self, actors: Sequence[Callable[[], Any]]) -> None:
        for number, act in enumerate(actors):
            self.stage.add(str(number), act)
        self.stage.play()

    def ask(
        self,
        place: int,
        *,
        batch_size: int = 1,
        wait_seconds: float = 0,
        named: bool = True,
        reports: bool = True,
    ) -> DequeueResult:
        """Dequeue once, and report what was got."""
        use = self._services[place % len(self._services)]
        began = self.stage.passed
        answer = use.deliveries.dequeue(
            "mail",
            batch_size=batch_size,
            wait_seconds=wait_seconds,
            worker=self._names[place] if named else "",
        )
        self.waited.append(self.stage.passed - began)
        for task in answer.tasks:
            self.taken.append(task.id)
            self.taken_at[task.id] = self.stage.passed
            self.ages.append((self.stage.now() - task.due_at).total_seconds())
        if answer.tasks and reports:
            done = ReportStatus.SUCCEEDED
            use.reports.report(
                "mail", [TaskReport(task.id, lease_name(task), done) for task in answer.tasks]
            )
        return answer

    def take(
        self, place: int, batch_size: int, *, named: bool = True
    ) -> tuple[Sequence[Task], Service]:
        """Dequeue once, and return the tasks and the service that leased them."""
        use = self._services[place % len(self._services)]
        worker = self._names[place] if named else ""
        return use.deliveries.dequeue("mail", batch_size=batch_size, worker=worker).tasks, use

    def worker(
        self,
        place: int,
        *,
        batch_size: int = 1,
        works_for: tuple[float, float] = (0.0, 0.0),
        until: float | None = None,
        wait_seconds: float = 0,
        named: bool = True,
        reports: bool = True,
    ) -> Callable[[], None]:
        """Return a worker that asks *until* a time, or until all that was enqueued is taken."""
        chance = random.Random(self._number())

        def goes_on() -> bool:
            if until is not None:
                return self.stage.passed < until
            return len(self.taken) < self.made

        def act() -> None:
            self.stage.sleep(chance.uniform(0, 0.2))
            while goes_on():
                answer = self.ask(
                    place,
                    batch_size=batch_size,
                    wait_seconds=wait_seconds,
                    named=named,
                    reports=reports,
                )
                work = sum(chance.uniform(*works_for) for _ in answer.tasks)
                self.stage.sleep(work if answer.tasks else answer.poll_after_seconds)

        return act
