"""What every store promises about the registry of workers."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from headrace.domain.access import Principal, Role
from headrace.domain.errors import Forbidden, NotFound
from headrace.domain.worker import Command, LiveWorker, WorkerHeartbeat
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.store.call_scope import acting
from tests.contract.conftest import World
from tests.manual_clock import ManualClock

STARTED = ManualClock()() - timedelta(hours=1)
ADA = WorkerHeartbeat(
    "ada:4711", ("mail", "news"), STARTED, concurrency=8, running=("a", "b"), version="1.4.2"
)


def key(role: Role, *patterns: str) -> Principal:
    return Principal("key_1", "somebody", role, patterns)


def alive(world: World, heartbeat: WorkerHeartbeat = ADA) -> Command | None:
    return world.use.workers.alive(heartbeat)


def ask(world: World, command: Command, name: str = ADA.name) -> Command | None:
    return world.use.workers.ask(name, command).command


def listed(world: World, by: Principal = BOOTSTRAP, limit: int = 50) -> Iterator[LiveWorker]:
    cursor = None
    while True:
        with acting(by):
            page = world.use.workers.list(limit=limit, cursor=cursor)
        assert len(page.shown) <= limit
        yield from page.shown
        cursor = page.cursor
        if cursor is None:
            return


def names(world: World, by: Principal = BOOTSTRAP, limit: int = 50) -> list[str]:
    return [worker.heartbeat.name for worker in listed(world, by, limit)]


def test_a_command_comes_with_every_heartbeat_that_follows(world: World) -> None:
    alive(world)

    assert ask(world, Command.STOP) is Command.STOP

    assert [alive(world), alive(world)] == [Command.STOP, Command.STOP]
    assert [worker.command for worker in listed(world)] == [Command.STOP]


def test_a_new_process_of_the_same_name_is_not_stopped_by_an_old_command(world: World) -> None:
    alive(world)
    ask(world, Command.STOP)
    again = replace(ADA, started_at=STARTED + timedelta(microseconds=1))

    assert alive(world, again) is None
    assert [worker.command for worker in listed(world)] == [None]

    assert ask(world, Command.QUIET) is Command.QUIET
    assert alive(world, again) is Command.QUIET


def test_after_five_minutes_of_silence_a_worker_is_gone_by_the_clock(world: World) -> None:
    alive(world)
    world.clock.forward(299.999)
    assert names(world) == ["ada:4711"]

    world.clock.forward(0.001)

    assert names(world) == []
    for command in Command:
        with pytest.raises(NotFound):
            ask(world, command)
    alive(world)
    assert names(world) == ["ada:4711"]


def test_the_list_goes_by_name_and_leaves_the_silent_out(world: World) -> None:
    for number in range(12):
        alive(world, replace(ADA, name=f"w-{number:02d}"))
    world.clock.forward(290)
    for number in range(1, 12, 3):
        alive(world, replace(ADA, name=f"w-{number:02d}"))
    alive(world, replace(ADA, name="é/% ü"))
    world.clock.forward(20)

    expected = ["w-01", "w-04", "w-07", "w-10", "é/% ü"]
    assert names(world) == names(world, limit=2) == names(world, limit=1) == expected


@pytest.mark.parametrize("queues", [("news",), ("mail", "news")])
def test_a_worker_of_other_queues_is_not_overwritten(world: World, queues: tuple[str, ...]) -> None:
    theirs = replace(ADA, queues=queues)
    alive(world, theirs)
    before = list(listed(world))
    world.clock.forward(299.999)
    mine, limited = replace(ADA, queues=("mail",)), key(Role.WORKER, "mail")

    with acting(limited), pytest.raises(Forbidden, match="all queues of worker ada:4711"):
        world.use.workers.alive(mine)

    assert list(listed(world)) == before
    for by in (key(Role.WORKER, "mail", "news"), limited):
        with acting(by):
            assert world.use.workers.alive(mine) is None


def test_a_worker_that_does_not_say_when_it_began_goes_on_as_it_was(world: World) -> None:
    def heartbeat() -> Command | None:
        unknown = replace(ADA, started_at=world.clock())
        return world.use.workers.alive(unknown, goes_on=True)

    first = world.clock()
    assert heartbeat() is None
    world.clock.forward(30)
    ask(world, Command.STOP)
    assert [heartbeat(), heartbeat()] == [Command.STOP] * 2
    assert [worker.heartbeat.started_at for worker in listed(world)] == [first]
    world.clock.forward(300)  # it is gone, and another begins
    assert heartbeat() is None
    assert [worker.heartbeat.started_at for worker in listed(world)] == [world.clock()]
