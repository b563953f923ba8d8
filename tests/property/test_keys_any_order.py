"""Keys made, rotated, used and revoked at once, in every order: names are unique, secrets end.

Processes may end between any two of their calls.  What the model must see is planted too: each
fault is a store that leaves out a condition that keys rely on.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headrace.domain.access import Role, hashed
from headrace.domain.change import Change
from headrace.domain.errors import KeyExists, Unauthenticated
from headrace.ops.operators.keys import BOOTSTRAP, IssuedKey, KeyOperations
from headrace.store.base import Record, Store
from headrace.store.memory import MemoryStore
from headrace.store.records import keys as key_records
from tests.contract.conftest import new_world
from tests.manual_clock import ManualClock
from tests.property.all_orders import Actor, Gated, all_orders
from tests.property.stores import STORES

HOUR = timedelta(hours=1)


class KeyCase:
    """A service with one key, "ci", and processes that do *what* with keys at once.

    ``rotate!1`` is a process that ends before the second of its calls.
    """

    def __init__(self, store: Store, what: Sequence[str]) -> None:
        gated: Any = Gated(store, key_records.KIND, key_records.NAMES)
        self.clock = ManualClock()
        self._keys = new_world(gated, self.clock).use.keys
        self.store = store
        self.first = self.create()
        self.actors = [Actor(self.act(one), _calls(one), one) for one in what]
        self.done = list(zip([one.partition("!")[0] for one in what], self.actors, strict=True))

    def act(self, what: str) -> Any:
        return getattr(self, what.partition("!")[0])

    @property
    def process(self) -> KeyOperations:
        """Another process, which knows nothing."""
        return replace(self._keys, _known=OrderedDict(), _unknown=OrderedDict())

    def create(self) -> IssuedKey:
        return self.process.create(BOOTSTRAP, "ci", Role.WORKER)

    def rotate(self) -> IssuedKey:
        return self.process.rotate(BOOTSTRAP, self.first.key.id, overlap=HOUR)

    def rotate_at_once(self) -> IssuedKey:
        return self.process.rotate(BOOTSTRAP, self.first.key.id)

    def rotate_unheard(self) -> IssuedKey:
        """Rotate, lose the answer, and rotate once more."""
        self.rotate()
        return self.rotate()

    def revoke(self) -> None:
        self.process.revoke(BOOTSTRAP, self.first.key.id)

    def use(self) -> None:
        self.process.verify(self.first.secret)

    def works(self, secret: str) -> bool:
        with suppress(Unauthenticated):
            self.process.verify(secret, note_use=False)
            return True
        return False

    def answers(self, *of: str) -> list[Actor]:
        return [actor for what, actor in self.done if what in of and not actor.cut]

    def check(self) -> None:
        """Assert what holds whatever the order, and whoever was cut off."""
        records, _ = self.store.records(key_records.KIND, limit=250)
        living = {stored.key.id: stored for stored in map(key_records.from_record, records)}
        first = living.get(self.first.key.id)
        names = [stored.key.name for stored in living.values()]
        assert len(names) == len({*names}), "two living keys have one name"
        for actor in self.answers("create"):
            assert actor.refusal or self.works(actor.answer.secret), "a key that was made is dead"

        rotations = self.answers("rotate", "rotate_at_once", "rotate_unheard")
        rotated = [one for one in rotations if not one.refusal]
        given = [actor.answer.secret for actor in rotated]
        alive = [secret for secret in (self.first.secret, *given) if self.works(secret)]
        assert len(alive) <= 2, "three secrets of one key live"
        if self.answers("revoke"):
            assert first is None, "a revoked key is back"
        if first is None:
            assert not alive, "a secret of a key that is gone lives"
            assert any(what == "revoke" for what, _ in self.done), "a key is gone by itself"
        elif not any(actor.cut for actor in self.actors):
            mine = {hashed(secret) for secret in (self.first.secret, *given)}
            assert first.hash in mine, "a secret that nobody was given took over"
        if any(not one.refusal for one in self.answers("rotate_at_once")):
            assert self.first.secret not in alive, "a secret outlives its rotation"
        if given and first is not None:
            assert first.hash != hashed(self.first.secret), "a rotation is undone"

        # Nobody who was cut off keeps a name from others.
        assert self._free() == (not living), "a name is neither had nor free"

    def _free(self) -> bool:
        with suppress(KeyExists):
            self.create()
            return True
        return False


def _calls(what: str) -> int | None:
    calls = what.partition("!")[2]
    return int(calls) if calls else None


def run(what: str, store: Callable[[], Store] = MemoryStore) -> int:
    """Check each order of *what*; return how many there are."""
    case: list[KeyCase] = []

    def begin() -> Sequence[Actor]:
        case[:] = [KeyCase(store(), what.split())]
        return case[0].actors

    orders = 0
    for _ in all_orders(begin):
        orders += 1
        case[0].check()
    return orders


OF_TWO = (
    "create revoke",
    "rotate rotate",
    "rotate use",
    "rotate revoke",
    "rotate_at_once use",
    "rotate_unheard use",
    "rotate rotate use!1",
)
OF_THREE = (
    "rotate_unheard revoke use",
    "rotate rotate_at_once use",
    "create create revoke",
    "create rotate revoke",
)


# The thousands of orders of three on one store: that another refuses the same writes, those of two
# show, and tests/contract.
@pytest.mark.parametrize(
    ("store", "what"),
    [
        *(("memory", what) for what in OF_TWO),
        *(pytest.param("sqlite", what, marks=pytest.mark.slow) for what in OF_TWO),
        *(pytest.param("memory", what, marks=pytest.mark.slow) for what in OF_THREE),
    ],
)
def test_what_holds_of_keys_holds_in_every_order(store: str, what: str) -> None:
    assert run(what, STORES[store]) > 1


@pytest.mark.parametrize(
    "what",
    [
        "create revoke!{}",
        "create!{} revoke",
        "create!{} create",
        "rotate!{} revoke",
        "rotate!{} rotate",
        "rotate revoke!{}",
    ],
)
@pytest.mark.parametrize("store", ["memory", pytest.param("sqlite", marks=pytest.mark.slow)])
def test_it_holds_where_a_process_ends_between_any_two_of_its_calls(store: str, what: str) -> None:
    for calls in range(5):
        run(what.format(calls), STORES[store])


# ------------------------------------------------------------------------------------- planted


class NamesReadThenWritten(MemoryStore):
    """Whose name it is, is looked at and then written."""

    def put_records(
        self, writes: Sequence[tuple[Record, int | None]], *, tasks: Sequence[Change] = ()
    ) -> bool:
        if len(writes) == 1:
            return super().put_records(writes, tasks=tasks)
        for record, _ in writes:
            self.renew_record(record)
        return True


class CountsNames(MemoryStore):
    """Of a name that is had, it is not looked at who has it: as if versions were counted."""

    def put_records(
        self, writes: Sequence[tuple[Record, int | None]], *, tasks: Sequence[Change] = ()
    ) -> bool:
        if len(writes) > 1:
            key, (named, version) = writes[0], writes[1]
            stored = self.record(named.kind, named.name)
            there = stored.version if stored is not None and version is not None else version
            writes = [key, (named, there)]
        return super().put_records(writes, tasks=tasks)


class ForgetsVersions(MemoryStore):
    """A key is written whatever is there."""

    def put_record(self, record: Record, *, replaces: int | None, lazy: bool = False) -> bool:
        if record.kind != key_records.KIND:
            return super().put_record(record, replaces=replaces, lazy=lazy)
        self.renew_record(record)
        return True


class DropsAnything(MemoryStore):
    """A name is given up whoever has it by then."""

    def drop_record(self, kind: str, name: str, *, version: int | None = None) -> bool:
        return super().drop_record(kind, name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "what", "seen"),
    [
        (NamesReadThenWritten, "create create revoke!2", "two living keys have one name"),
        (CountsNames, "create create revoke", "two living keys have one name"),
        (ForgetsVersions, "use revoke", "a revoked key is back"),
        (ForgetsVersions, "rotate revoke", "a revoked key is back"),
        (ForgetsVersions, "rotate use", "undone"),
        (ForgetsVersions, "rotate_at_once use", "outlives"),
        (DropsAnything, "create revoke", "neither had nor free"),
    ],
)
def test_the_model_sees_a_condition_that_is_left_out(
    store: type[MemoryStore], what: str, seen: str
) -> None:
    with pytest.raises(AssertionError, match=seen):
        run(what, store)
