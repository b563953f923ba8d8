"""What one key may see, over every store."""

from collections.abc import Callable
from functools import partial

import pytest

from headrace.domain.access import Principal, Role
from headrace.domain.errors import Forbidden, InvalidRequest, NotFound
from headrace.domain.operate import BulkAction
from headrace.ops.delivery.reports import ReportStatus, TaskReport
from headrace.ops.operators import visibility
from headrace.ops.operators.keys import BOOTSTRAP, acting
from headrace.ops.shared.audit import AuditFilter
from headrace.store.call_scope import metered
from tests.contract.conftest import World, hooked
from tests.contract.test_keys import principal


@pytest.mark.gate
def test_a_key_sees_its_own_queues_only_and_no_page_tells_of_others(world: World) -> None:
    for name in ("a", "ngsi.1", "ngsi.2", "ngsi.3x", "ngsi.4", "z"):
        world.queue(name)
    by = principal(world, "ngsi.1", "ngsi.*x", "*.4", role=Role.VIEWER)

    first = visibility.queues(world.use.queues, by, limit=2)
    second = visibility.queues(world.use.queues, by, limit=2, cursor=first.cursor)

    assert [queue.name for queue in first.shown] == ["ngsi.1", "ngsi.3x"]
    assert [queue.name for queue in second.shown] == ["ngsi.4"]
    assert second.cursor is None
    one = visibility.queues(world.use.queues, by, limit=1)
    assert [queue.name for queue in one.shown] == ["ngsi.1"]
    assert one.cursor is not None


def test_a_key_sees_tasks_of_its_queues_and_cannot_tell_others_from_none(world: World) -> None:
    (inside,) = world.put(world.queue("ngsi.1"), '"in"')
    (outside,) = world.put(world.queue("mail"), '"out"')
    by = principal(world, "ngsi.*", role=Role.WORKER)

    assert visibility.task(world.use.tasks, by, inside).payload == '"in"'
    refusals = set()
    for task_id in (outside, "nobody"):
        with pytest.raises(Forbidden) as refused:
            visibility.task(world.use.tasks, by, task_id)
        refusals.add(refused.value.detail.replace(task_id, ""))
    assert len(refusals) == 1
    with pytest.raises(NotFound):
        visibility.task(world.use.tasks, BOOTSTRAP, "nobody")


def test_a_viewer_sees_no_payload(world: World) -> None:
    (task_id,) = world.put(world.queue(), '"in"')

    seen = visibility.task(world.use.tasks, principal(world, "*", role=Role.VIEWER), task_id)

    assert seen.payload is None


def test_a_restricted_key_reads_the_audit_of_its_queues_only(world: World) -> None:
    by = principal(world, "ngsi.*", role=Role.OPERATOR)
    for name in ("ngsi.1", "mail", "ngsi.2"):
        with acting(BOOTSTRAP if name == "ngsi.1" else by):
            world.queue(name)
        world.clock.forward(1)
    audit = world.use.audit

    def seen(who: Principal, where: AuditFilter) -> list[tuple[str, str | None]]:
        page = visibility.audit(audit, who, where)
        return [(entry.action, entry.queue) for entry in page.shown]

    assert seen(by, AuditFilter()) == [("create_queue", "ngsi.2"), ("create_queue", "ngsi.1")]
    assert seen(by, AuditFilter(actor="somebody")) == [("create_queue", "ngsi.2")]
    assert len(seen(BOOTSTRAP, AuditFilter())) == 4
    cursor = visibility.audit(audit, by, AuditFilter(), limit=1).cursor
    with pytest.raises(InvalidRequest, match="cursor"):
        visibility.audit(audit, BOOTSTRAP, AuditFilter(), limit=1, cursor=cursor)
    with pytest.raises(Forbidden, match="operator or admin"):
        visibility.audit(audit, principal(world, "*", role=Role.WORKER), AuditFilter())


def test_a_task_that_moves_outside_before_it_is_deleted_stays(world: World) -> None:
    inside, outside = world.queue("ngsi.1"), world.queue("mail")
    (task_id,) = world.put(inside)
    by = principal(world, "ngsi.*", role=Role.OPERATOR)

    def move() -> None:
        world.use.bulk.by_ids(inside, BulkAction.MOVE, [task_id], to_queue=outside)

    with pytest.raises(Forbidden):
        visibility.delete_task(hooked(world, before_commit=move).use.tasks, by, task_id)
    assert world.see(task_id).queue == outside


def test_of_a_task_that_is_gone_a_restricted_key_learns_nothing(world: World) -> None:
    by = principal(world, "ngsi.*", role=Role.OPERATOR)
    with pytest.raises(Forbidden, match="if there is one"):
        visibility.delete_task(world.use.tasks, by, "order")
    with pytest.raises(NotFound):
        visibility.delete_task(world.use.tasks, BOOTSTRAP, "order")


def test_a_task_of_others_costs_a_restricted_key_what_none_costs(world: World) -> None:
    inside, outside = world.queue("ngsi.1"), world.queue("mail")
    world.put(outside, f'"{"x" * 100_000}"', id="large")
    world.put(outside, id="small")
    by = principal(world, "ngsi.*", role=Role.WORKER)
    report = partial(TaskReport, lease_id="lse_x", status=ReportStatus.SUCCEEDED)
    calls: dict[str, Callable[[str], object]] = {
        "read": lambda id_: world.use.bulk.by_ids(inside, BulkAction.DELETE, [id_]),
        "written": lambda id_: world.use.reports.report(inside, [report(id_)]),
    }

    for call in calls.values():
        costs = []
        for task_id in ("nobody", "small", "large"):
            with metered() as meter, acting(by):
                call(task_id)
            costs.append((meter.write, meter.read))
        assert costs[0] == costs[1] == costs[2]
