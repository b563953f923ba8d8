"""A run of a scenario, from the first call to the last check."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tests.simulation.repeats  # noqa: F401 (it adds checks)
from headrace.domain.task import State
from tests.simulation import checks
from tests.simulation.actors import Caller
from tests.simulation.background import Background
from tests.simulation.facts import Facts
from tests.simulation.scenario import Scenario, scenario
from tests.simulation.tables import LoggedTables
from tests.simulation.world import Lost, Refused, World, seeded

ROUNDS = 300
"""Rounds of the calm end after which a task that has not ended counts as starved."""


@dataclass
class Result:
    """What a run found: empty if all promises held."""

    scenario: Scenario
    failures: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)


def run(played: Scenario | int, tables: LoggedTables | None = None) -> Result:
    """Play a scenario, let all work end without faults, and check what happened.

    The store is SQLite in memory, or *tables*.
    """
    if isinstance(played, int):
        played = scenario(played)
    with seeded(played.seed):
        world, facts = World(played.seed, played.rates, tables), Facts()
        try:
            failures = _played(world, played, facts)
        except AssertionError as error:
            failures = [f"{error}"]
        finally:
            world.store.close()
    return Result(played, failures, [str(line) for line in world.story])


def _played(world: World, played: Scenario, facts: Facts) -> list[str]:
    calm, world.calm = world.calm, True
    for name, settings in sorted(played.queues.items(), key=lambda each: "on_end" in each[1]):
        world.call("POST", "/v1/queues", {"name": name, **settings})
    world.calm = calm
    background = Background(world, played)
    background.start()
    left = len(played.actors)

    def acting(caller: Caller) -> None:
        nonlocal left
        caller.run()
        left -= 1
        background.ending = left == 0

    for actor in played.actors:
        caller = Caller(world, played, facts, actor)
        world.stage.add(actor.name, partial(acting, caller), after=0.01)
    world.stage.play()
    world.calm = True
    world.say("From here on nothing fails, and workers succeed.")
    _drain(world, played, facts, background)
    return checks.all_failures(world, played, facts)


def _drain(world: World, played: Scenario, facts: Facts, background: Background) -> None:
    """Let every task end: resume queues, end schedules, work; restart what halts its group."""
    background.attempt(lambda use: use.ticking.run())  # others may have ended long after its last
    for queue in played.queues:
        _try(world, "POST", f"/v1/queues/{queue}/resume")
        shown = _try(world, "GET", f"/v1/queues/{queue}/schedules")
        for schedule in shown.get("schedules", ()):
            _try(world, "DELETE", f"/v1/queues/{queue}/schedules/{schedule['name']}")
    facts.schedules_ended = world.stage.passed
    world.stage.sleep(10)
    for _ in range(ROUNDS):
        for queue in played.queues:
            _work(world, played, queue)
        for job in (
            lambda use: use.reaping.run(),
            lambda use: use.ticking.run(),
            background.act,
            background.push_once,
            background.record_all,
        ):
            background.attempt(job)
        if not _unfinished(world) and not _acting(world, facts):
            break
        world.stage.sleep(7.0)
    for queue in sorted(set(facts.inexact)):
        _recount(world, queue)


def _recount(world: World, queue: str) -> None:
    """Recount a queue at rest whose counters may be off since tasks changed in a recount."""
    world.stage.sleep(1.0)
    answer: dict[str, Any] = {"cursor": None, "exact": True}
    while True:
        answer = _try(world, "POST", f"/v1/queues/{queue}/recount", {"cursor": answer["cursor"]})
        if not answer:  # the queue was deleted
            return
        if answer["cursor"] is None:
            assert answer["exact"], f"{queue}: a recount at rest is not exact"
            return


def _work(world: World, played: Scenario, queue: str) -> None:
    for _ in range(20):
        answer = _try(
            world, "POST", f"/v1/queues/{queue}/dequeue", {"batch_size": 25, "worker": "last"}
        )
        tasks = answer.get("tasks", ())
        reports = [
            {"task_id": task["id"], "lease_id": task["lease"]["id"], "status": "SUCCEEDED"}
            for task in tasks
        ]
        if not reports:
            break
        world.call("POST", f"/v1/queues/{queue}/reports", {"reports": reports})
    if played.kind(queue) == "strict halt":
        body = {"filter": {"state": "DEAD"}}
        _try(world, "POST", f"/v1/queues/{queue}/tasks/restart", body)


def _try(world: World, method: str, path: str, body: object = None) -> dict[str, Any]:
    try:
        return world.call(method, path, body)
    except (Lost, Refused):
        return {}


def _unfinished(world: World) -> bool:
    live = {State.ENQUEUED, State.INFLIGHT}
    return any(spot[1] in live for spot in checks.spots(world).values())


def _acting(world: World, facts: Facts) -> bool:
    shown = (_try(world, "GET", f"/v1/actions/{one}") for one in facts.actions)
    return any(one.get("status") in ("LOOKING", "RUNNING") for one in shown)
