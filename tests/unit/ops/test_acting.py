"""On whose behalf a block is done; nothing of it may be left behind in the thread."""

import pytest

from headrace.domain.access import Principal, Role
from headrace.ops.operators.keys import acting, current_actor
from headrace.store import call_scope
from headrace.store.call_scope import Caller, caller, during

SENSOR = Principal("key_1", "sensor", Role.PRODUCER, ("ngsi.*",))


@pytest.mark.parametrize("interrupted_at", [1, 2])
def test_an_interruption_at_the_end_of_a_block_leaves_nobody_acting(
    interrupted_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = 0
    end = during.__exit__

    def interrupted(self: during[object], *_: object) -> None:
        nonlocal ends
        ends += 1
        end(self)
        if ends == interrupted_at:
            raise KeyboardInterrupt

    monkeypatch.setattr(call_scope.during, "__exit__", interrupted)

    with pytest.raises(KeyboardInterrupt), acting(SENSOR):
        assert current_actor() == SENSOR

    assert current_actor() is None
    assert caller() == Caller()
    assert not call_scope.restricted()
