"""The service's own work: reaper, scheduler, recorder, actions, dispatcher, index and the rest."""

import random
from collections.abc import Callable

from headrace.domain.errors import Unavailable
from headrace.domain.push_messages import TargetAnswer
from headrace.runtime.service import Service
from tests.simulation.scenario import Scenario
from tests.simulation.world import Lost, World

SHARD = "log"


class Background:
    """Runs each job every few seconds, in processes that may die."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        self.world, self.scenario = world, scenario
        self.ending = False
        self.chance = random.Random(f"{scenario.seed} background")
        self.recorded = -1  # the last write that a recorder may have counted

    def start(self) -> None:
        """Add an actor for each job to the stage."""
        jobs: dict[str, tuple[float, Callable[[Service], object]]] = {
            "reaper": (30.0, lambda use: use.reaping.run()),
            "scheduler": (40.0, lambda use: use.ticking.run()),
            "recorder": (3.0, self.record),
            "actions": (3.0, self.act),
            "counters": (30.0, lambda use: use.counters.post_left()),
            "broom": (60.0, lambda _: self.world.store.forget()),
        }
        for name, (every, work) in jobs.items():
            self.world.stage.add(
                name, self._repeated(every, work), after=self.chance.uniform(0, every)
            )
        for queue in self.scenario.queues:
            if self.scenario.kind(queue) == "push":
                self.world.stage.add("dispatcher", self._repeated(2.0, self._pushing(queue)))

    def _repeated(self, every: float, work: Callable[[Service], object]) -> Callable[[], None]:
        def act() -> None:
            while not self.ending:
                self.attempt(work)
                self.world.stage.sleep(every * self.chance.uniform(0.5, 1.5))

        return act

    def attempt(self, work: Callable[[Service], object]) -> None:
        """Do the work once; a process that dies or finds no table leaves it to the next time."""
        try:
            with self.world.borrowed() as use:
                work(use)
        except (Lost, Unavailable):
            pass

    def record(self, use: Service) -> None:
        """Hand some writes to the recorder, some of them again."""
        position = use.recording.position(SHARD)
        again = self.chance.choice((0, 0, 0, 1, 5))
        writes = self.world.store.writes(
            after=max(-1, position - again), limit=self.chance.choice((1, 3, 10, 100))
        )
        if writes:
            use.recording.record(SHARD, writes)

    def record_all(self, use: Service) -> None:
        for _ in range(1_000):
            position = use.recording.position(SHARD)
            writes = self.world.store.writes(after=position, limit=500)
            if not writes:
                break
            recorded = use.recording.record(SHARD, writes)
            assert not recorded.unreadable, recorded.unreadable
        use.counters.post_left()

    def act(self, use: Service) -> None:
        """Work on actions."""
        if use.actions.any_unfinished():
            left = self.chance.choice((0.0, 5.0, 60.0))
            use.action_work.run(time_left=lambda: left)

    def _pushing(self, queue: str) -> Callable[[Service], None]:
        def push(use: Service) -> None:
            run = use.push.begin(queue)
            if run is None:
                return
            for _ in range(self.chance.choice((1, 4))):
                tasks = run.fetch()
                for task in tasks:
                    seconds = self.chance.choice((0.1, 1.0, 12.0))
                    self.world.stage.sleep(seconds)
                    status = self.chance.choice((200, 200, 204, 400, 429, 500, None))
                    if self.world.calm:
                        status = 200
                    self.world.say(f"POST {task.id} to the target: {status}")
                    answer = TargetAnswer(status, error="" if status else "TimeoutError")
                    run.settle([(task, answer, seconds)])
                    run.renew()
                if not tasks:
                    break
                run.renew()
            run.close()

        return push

    def push_once(self, use: Service) -> None:
        for queue in self.scenario.queues:
            if self.scenario.kind(queue) == "push":
                self._pushing(queue)(use)
