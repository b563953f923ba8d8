"""A changed copy is what `dataclasses.replace` makes."""

from dataclasses import dataclass, fields, replace

import pytest

from headrace.domain.copies import altered, maker, quick
from headrace.domain.task import Place, State, Task
from tests.manual_clock import ManualClock

NOW = ManualClock()()
WAITING = Task(
    id="one",
    place=Place("mail", State.ENQUEUED, 0),
    scheduled_at=NOW,
    due_at=NOW,
    created_at=NOW,
    enqueued_at=NOW,
    payload="1",
)


@dataclass(frozen=True, slots=True)
class Checked:
    """Checks what it is given."""

    name: str
    also: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a name")


def test_a_copy_has_what_was_changed_and_all_else_as_it_was() -> None:
    copy = altered(WAITING, attempts=7, worker="host:1")

    assert copy == replace(WAITING, attempts=7, worker="host:1")
    assert type(copy) is Task
    assert (WAITING.attempts, WAITING.worker) == (0, None)


def test_what_is_no_field_is_refused() -> None:
    with pytest.raises(TypeError, match="atempts"):
        altered(WAITING, atempts=1)


def test_what_checks_itself_checks_its_copies() -> None:
    with pytest.raises(ValueError, match="a name"):
        altered(Checked("one"), name="")


def test_what_checks_itself_is_not_made_past_its_checks() -> None:
    with pytest.raises(TypeError, match="__post_init__"):
        maker(Checked, ["name", "also"])


@quick
class Derived(Place):
    """Has slots that stand in another class."""

    more: str = ""


def test_what_has_a_base_is_not_made_in_another_order() -> None:
    with pytest.raises(TypeError, match="has a base"):
        maker(Derived, ["more", "queue", "state", "shard", "lane"])


def test_one_is_made_of_its_values_in_any_order() -> None:
    names = sorted(field.name for field in fields(Task))

    assert maker(Task, names)([getattr(WAITING, name) for name in names]) == WAITING


@pytest.mark.parametrize("given", [["queue", "state", "shard"], ["queue", "state", "colour"]])
def test_of_other_fields_than_its_own_nothing_is_made(given: list[str]) -> None:
    with pytest.raises(TypeError, match="other fields"):
        maker(Place, given)
