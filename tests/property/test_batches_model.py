"""When is a batch complete?  Every rule that comes to mind, tried in all orders of what is seen.

Tasks make children, those make others; a process that counts sees the writes of each task in their
order, and those of different tasks in any.  A rule must never say "complete" before every member
has ended, and must say it when all was seen.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from headrace.domain.batch import HASHES, hash_of

ORDERS = 20_000


@dataclass
class Seen:
    """What a counting process has seen so far."""

    direct: int = 0
    owed: int = 0
    owed_children: int = 0
    live: int = 0
    born: int = 0


@dataclass(frozen=True)
class Write:
    """One write of one member: its birth, or its end with the children it makes."""

    task: str
    parent: str | None
    children: tuple[str, ...] = ()
    end: bool = False


@dataclass
class Family:
    """Direct members and their descendants, and all writes of each in their order."""

    total: int
    writes: dict[str, list[Write]] = field(default_factory=dict)

    def add(self, task: str, parent: str | None, chance: random.Random, depth: int) -> None:
        number = chance.choice((0, 0, 1, 2, 3)) if depth else 0
        children = tuple(f"{task}.{place}" for place in range(number))
        self.writes[task] = [
            Write(task, parent),
            Write(task, parent, children, end=True),
        ]
        for child in children:
            self.add(child, task, chance, depth - 1)


Rule = Callable[[Seen, int], bool]

RIGHT: Rule = lambda seen, total: seen.direct == total and seen.owed == 0 and seen.live == 0  # noqa: E731  a table of rules
WRONG: dict[str, Rule] = {
    "nothing is live": lambda seen, total: seen.direct == total and seen.live == 0,
    "children are counted": lambda seen, total: (
        seen.direct == total and seen.owed_children == 0 and seen.live == 0
    ),
    "as many as were made have ended": lambda seen, total: seen.born >= total and seen.live == 0,
}


def a_family(chance: random.Random) -> Family:
    family = Family(chance.randint(1, 3))
    for place in range(family.total):
        family.add(f"m{place}", None, chance, 3)
    return family


def any_order(family: Family, chance: random.Random) -> Iterator[Write]:
    """Yield all writes: those of one task in order, those of different ones in any."""
    left = {task: list(writes) for task, writes in family.writes.items()}
    while left:
        task = chance.choice(sorted(left))
        yield left[task].pop(0)
        if not left[task]:
            del left[task]


def count(seen: Seen, write: Write) -> None:
    if not write.end:
        seen.live += 1
        seen.born += 1
        if write.parent is None:
            seen.direct += 1
        else:
            seen.owed = (seen.owed - hash_of(write.task)) % HASHES
            seen.owed_children -= 1
        return
    seen.live -= 1
    seen.owed = (seen.owed + sum(map(hash_of, write.children))) % HASHES
    seen.owed_children += len(write.children)


def judge(rule: Rule, orders: int) -> tuple[int, int]:
    """Return in how many of so many orders *rule* spoke early, and in how many never."""
    early = never = 0
    for seed in range(orders):
        chance = random.Random(seed)
        family, seen, spoke = a_family(chance), Seen(), False
        writes = list(any_order(family, chance))
        for place, write in enumerate(writes, 1):
            count(seen, write)
            spoke = rule(seen, family.total)
            if spoke and place < len(writes):
                early += 1
                break
        else:
            never += not spoke
    return early, never


def test_the_rule_of_three_numbers_is_never_early_and_never_silent() -> None:
    assert judge(RIGHT, 2_000) == (0, 0)


@pytest.mark.slow
def test_the_rule_holds_in_many_more_orders() -> None:
    assert judge(RIGHT, ORDERS) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("rule", WRONG)
def test_what_others_count_speaks_early(rule: str) -> None:
    early, _ = judge(WRONG[rule], 2_000)

    assert early > 20
