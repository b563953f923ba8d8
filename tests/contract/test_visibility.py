"""What one key may see, over every store."""

import pytest

from headrace.domain.access import Role
from headrace.domain.errors import Forbidden
from headrace.domain.operate import BulkAction
from headrace.store.call_scope import acting
from tests.contract.conftest import World, hooked
from tests.contract.test_keys import principal


def test_a_task_that_moves_outside_before_it_is_deleted_stays(world: World) -> None:
    inside, outside = world.queue("ngsi.1"), world.queue("mail")
    (task_id,) = world.put(inside)
    by = principal(world, "ngsi.*", role=Role.OPERATOR)

    def move() -> None:
        world.use.bulk.by_ids(inside, BulkAction.MOVE, [task_id], to_queue=outside)

    with acting(by), pytest.raises(Forbidden):
        hooked(world, before_commit=move).use.tasks.delete(task_id)
    assert world.see(task_id).queue == outside
