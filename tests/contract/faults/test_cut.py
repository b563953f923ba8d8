"""What is noted of an action that was cut on its way: as much as it had done."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.ops.shared.audit import AuditFilter
from tests.contract.conftest import World
from tests.contract.faults.client import Answer
from tests.contract.faults.service import FaultyService

Act = Callable[[World, list[str]], Any]
ACTS: dict[str, Act] = {
    "by ids": lambda world, ids: world.use.bulk.by_ids("mail", BulkAction.DELETE, ids),
    "by filter": lambda world, _: world.use.bulk.by_filter("mail", BulkAction.DELETE, TaskFilter()),
}


def away_at(number: int) -> Callable[[str, Answer], bool]:
    """Let the table be away for one write of a task, the one of this *number*."""
    writes = 0

    def blocked(name: str, _arguments: Answer) -> bool:
        nonlocal writes
        deletes = name in ("batch_execute_statement", "delete_item")
        writes += deletes
        return deletes and writes == number

    return blocked


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_a_bulk_action_that_was_cut_is_noted_with_what_it_had_done(
    service: FaultyService, world: World, act: Act
) -> None:
    ids = world.put(world.queue(), *["{}"] * 9)

    with service.suffering(blocked=away_at(4)), pytest.raises(Unavailable):
        act(world, ids)

    (entry,) = world.use.audit.list(AuditFilter(action="delete")).shown
    assert (entry.matched, entry.changed) == (3, 3)
    assert len(world.store.read(ids)) == 6
