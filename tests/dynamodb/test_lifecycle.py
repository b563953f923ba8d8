"""Every act that the table allows on AWS's own engine, and every act on what is deleted.

What the table refuses in other states sends nothing, or a change that test_statements.py makes the
engine refuse in each state; that nobody asks for more is shown in memory.
"""

from collections.abc import Callable

import pytest

from headrace.domain.lifecycle import Action, Actor, rules
from headrace.domain.task import State
from headrace.store.dynamo import DynamoStore
from tests.unit.domain import test_lifecycle_acts as acts
from tests.unit.domain.test_lifecycle_acts import ANYWHERE, DELETED, LifecycleCase

ALLOWED = [
    (source, action, actor, target, act)
    for action, actor, target, act in acts.ACTS
    for source in ANYWHERE
    if source is DELETED or rules(action, source, actor=actor)
]


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
@pytest.mark.parametrize(("source", "action", "actor", "target", "act"), ALLOWED, ids=acts.named)
def test_what_the_table_allows_happens_and_nothing_else(
    batch: DynamoStore,
    source: State | None,
    action: Action,
    actor: Actor,
    target: State | None,
    act: Callable[[LifecycleCase], None],
    *,
    keyed: bool,
) -> None:
    acts.happens(batch, source, action, actor, target, act, keyed=keyed)


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
@pytest.mark.parametrize(("source", "act"), acts.ENDS, ids=acts.named)
def test_without_history_and_dead_letters_the_end_of_a_life_is_gone(
    batch: DynamoStore, source: State | None, act: Callable[[LifecycleCase], None], *, keyed: bool
) -> None:
    acts.ends(batch, source, act, keyed=keyed)
