"""What is kept of the first request under a key, over every store."""

import base64
import random
from datetime import timedelta

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.repeat import KeyedRequest, RecordedAnswer
from headrace.ops.shared.repeats import RepeatTurn
from tests.contract.conftest import World

ASKED = KeyedRequest("key_1", "k", "what")
SECOND = timedelta(seconds=1)


def begun(world: World, request: KeyedRequest = ASKED) -> RepeatTurn:
    turn = world.use.repeats.begin(request, within=10 * SECOND)
    assert isinstance(turn, RepeatTurn)
    return turn


def incompressible(size: int) -> str:
    """Return a text of so many bytes that no compression makes much smaller."""
    chance = random.Random(size)
    return base64.b64encode(chance.randbytes(size))[:size].decode()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("é \N{EURO SIGN} \U0001f389", id="short"),
        pytest.param('{"id": "tsk_1"}' * 10_000, id="long"),
        pytest.param(incompressible(300_000), id="in two items"),
        pytest.param(incompressible(4 * 1024 * 1024), id="4 MiB", marks=pytest.mark.slow),
    ],
)
def test_an_answer_of_any_size_is_given_again_as_it_was(world: World, text: str) -> None:
    answer = RecordedAnswer(201, "application/json", text)
    world.use.repeats.finish(begun(world), answer)

    for _ in range(2):
        assert world.use.repeats.begin(ASKED, within=SECOND) == answer


@pytest.mark.gate
def test_whose_time_is_over_is_followed_by_one_and_changes_nothing_more(world: World) -> None:
    slow = begun(world)
    world.clock.forward(10)
    next_one = begun(world)

    world.use.repeats.give_up(slow)
    world.use.repeats.finish(slow, RecordedAnswer(200, None, "slow"))
    with pytest.raises(Unavailable):
        world.use.repeats.begin(ASKED, within=SECOND)
    world.use.repeats.finish(next_one, RecordedAnswer(200, None, "next"))

    assert world.use.repeats.begin(ASKED, within=SECOND) == RecordedAnswer(200, None, "next")
