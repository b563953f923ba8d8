"""Plans of single changes, at the borders of their conditions."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from headrace.domain import plan
from headrace.domain.errors import InvalidRequest
from headrace.domain.offload import Upload
from headrace.domain.plan import TaskSpec
from headrace.domain.push import Target
from headrace.domain.queue import Queue
from headrace.domain.queue_settings import PrioritySettings, QueueSettings
from headrace.domain.task import Membership, Overwritable, Priority, Task
from headrace.domain.task_groups import GroupMode, GroupSettings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
INSTANT = timedelta(microseconds=1)
PLAIN = Queue("mail", QueueSettings(), NOW, NOW)
FAIR = Queue("mail", QueueSettings(groups=GroupSettings(GroupMode.FAIR)), NOW, NOW)
PUSH = Queue("mail", QueueSettings(target=Target(url="https://hook.example.com/")), NOW, NOW)
RANKED = Queue("mail", QueueSettings(priority=PrioritySettings()), NOW, NOW)
LASTING = Queue("mail", QueueSettings(expires_in_seconds=0), NOW, NOW)
UPLOAD = Upload("task-1", "token", NOW, 5, "sha256", "mark")


@pytest.mark.parametrize(
    ("queue", "new", "takes"),
    [
        (FAIR, TaskSpec("{}"), True),
        (FAIR, TaskSpec("{}", scheduled_at=NOW), True),
        (FAIR, TaskSpec("{}", scheduled_at=NOW + INSTANT), False),
        (FAIR, TaskSpec("{}", delay_in_seconds=1), False),
        (PLAIN, TaskSpec("{}"), False),
    ],
)
def test_a_task_that_is_due_takes_its_groups_turn(
    queue: Queue, new: TaskSpec, *, takes: bool
) -> None:
    assert new.takes_turn(queue, NOW) is takes


@pytest.mark.parametrize(
    ("queue", "new", "field"),
    [
        (PLAIN, TaskSpec("{}", expires_at=NOW), "expires_at"),
        (PLAIN, TaskSpec("{}", expires_at=NOW + INSTANT), None),
        (PLAIN, TaskSpec("{}", upload=UPLOAD), None),
        (PUSH, TaskSpec("{}"), None),
        (PUSH, TaskSpec("{}", upload=UPLOAD), "payload_ref"),
    ],
)
def test_a_task_with_a_fault_is_kept_out(queue: Queue, new: TaskSpec, field: str | None) -> None:
    fault = new.fault(queue, NOW)
    assert (fault and fault.split()[0]) == field


def enqueued(queue: Queue, new: TaskSpec, *, inherited: tuple[str, ...] = ()) -> Task:
    """Return the task that *new* makes in *queue*."""
    change = plan.enqueue(
        new, queue, task_id="task-1", due_at=NOW, now=NOW, token=None, inherited=inherited
    )
    assert change.insert is not None
    return change.insert


def test_a_child_inherits_the_batches_that_its_parent_is_in() -> None:
    child = enqueued(PLAIN, TaskSpec("{}", batches=("a", "b")), inherited=("a",))
    assert child.batches == (Membership("a", inherited=True), Membership("b", inherited=False))


@pytest.mark.parametrize(
    ("queue", "name", "new", "put", "clear"),
    [
        (PLAIN, "payload", TaskSpec("2"), {"payload": "2"}, ()),
        (PLAIN, "tags", TaskSpec("2", tags={"a": "b"}), {"tags": {"a": "b"}}, ()),
        (PLAIN, "expires_at", TaskSpec("2"), {"expires_at": NOW + timedelta(days=14)}, ()),
        (LASTING, "expires_at", TaskSpec("2"), {}, ("expires_at",)),
        (RANKED, "priority", TaskSpec("2"), {"priority": Priority.NORMAL}, ()),
        (PLAIN, "priority", TaskSpec("2"), {}, ("priority",)),
    ],
)
def test_a_duplicate_overwrites_what_it_names(
    queue: Queue, name: Overwritable, new: TaskSpec, put: dict[str, object], clear: tuple[str, ...]
) -> None:
    held = enqueued(queue, TaskSpec("1", expires_at=NOW + timedelta(days=1)))
    change = plan.overwrite(held, structs.replace(new, overwrite=frozenset({name})), queue, now=NOW)
    moved = {"place", "scheduled_at", "due_at"} if name == "priority" else set()
    assert {field: change.put[field] for field in {*change.put} - moved} == put
    assert {*change.clear} & {"priority", "expires_at"} == {*clear}


def test_a_duplicate_does_not_let_a_task_expire_before_it_is_due() -> None:
    held = enqueued(PLAIN, TaskSpec("1"))
    new = TaskSpec("2", expires_at=NOW, overwrite=frozenset({"expires_at"}))
    with pytest.raises(InvalidRequest, match="expires_at"):
        plan.overwrite(held, new, PLAIN, now=NOW)
    later = structs.replace(new, expires_at=NOW + INSTANT)
    assert plan.overwrite(held, later, PLAIN, now=NOW).put == {"expires_at": NOW + INSTANT}
