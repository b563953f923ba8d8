"""`headrace smoke` touches nothing of others, and removes what it has made, whatever happens."""

import re
import shlex
from typing import Any

import httpx2 as httpx
import pytest

from headrace.cli.session import CliSession
from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import invoke
from tests.unit.cli.smoke_harness import (
    Answer,
    RequestCounter,
    SmokeDeployment,
    problem,
)


@pytest.fixture
def sound() -> SmokeDeployment:
    return SmokeDeployment()


# ---------------------------------------------------------------------------- what is others'


def fill(service: MemoryService) -> None:
    for name in ("mail", "ngsi.notify"):
        service.client.create_queue(name)
        service.client.enqueue(name, {"n": 1}, id=f"{name[:4]}-1", tags={"fiware-service": "city"})
        service.client.put_schedule(name, "nightly", cron="0 3 * * *")
    service.client.create_key("sensors", "producer", ["ngsi.*"])


def things_of(service: MemoryService) -> dict[str, Any]:
    client = service.client
    return {
        "queues": [client.get_queue(queue.name) for queue in client.list_queues()],
        "keys": list(client.list_keys()),
        "tasks": sorted(service.store.everything(), key=lambda task: task.id),
    }


def without_stats(things: dict[str, Any]) -> str:
    """Return all that can be told of things, save how long they have been there."""
    return re.sub(r"stats=Stats\(.*?\), schedules", "schedules", repr(things))


def test_nothing_of_others_is_touched(sound: SmokeDeployment) -> None:
    fill(sound.service)
    before = things_of(sound.service)

    sound.rows()

    assert without_stats(things_of(sound.service)) == without_stats(before)


# ------------------------------------------------------------------------------------ cleaning up


@pytest.mark.parametrize(
    ("number", "after"), [(4, True), pytest.param(60, False, marks=pytest.mark.slow)]
)
def test_ctrl_c_leaves_nothing_wherever_it_comes(number: int, *, after: bool) -> None:
    stopped = SmokeDeployment(RequestCounter(number, KeyboardInterrupt(), after=after))

    ran = stopped.smoke()

    assert ran.code == 130
    assert stopped.there() == set()
    assert "left behind" not in ran.err


def test_what_is_left_behind_is_told_with_the_command_that_removes_it(
    sound: SmokeDeployment,
) -> None:
    def refusing(request: httpx.Request, answer: Answer) -> httpx.Response:
        return problem(503, "unavailable") if request.method == "DELETE" else answer()

    sound.spoil = refusing

    ran = sound.smoke("--quiet")

    left = re.findall(r"^left behind: .*; remove it: headrace (.*)$", ran.err, re.MULTILINE)
    assert ran.code == 1
    assert len(left) == 6
    for command in left:
        session = CliSession(given_client=sound.client, env={}, at_terminal=lambda: True)
        answer = "ngsi.notify\n" if "ngsi.notify" in command and "--yes" not in command else None
        assert invoke(*shlex.split(command), session=session, input=answer).code == 0, command
    assert sound.there() == set()
