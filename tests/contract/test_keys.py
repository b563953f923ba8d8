"""What every store promises about keys."""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import count

import pytest

from headrace.domain.access import Principal, Role, ShownKey
from headrace.domain.errors import (
    Forbidden,
    KeyExists,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from headrace.ops.operators.keys import BOOTSTRAP, KeyOperations
from headrace.store.call_scope import metered
from tests.contract.conftest import World, dies, hooked, new_world, overtaken

HOUR = 3600


def elsewhere(world: World) -> KeyOperations:
    """Give the same keys as another process knows them."""
    return new_world(world.store, world.clock).use.keys


def principal(world: World, *queues: str, role: Role = Role.ADMIN) -> Principal:
    """Make a key and return who presents it: the first is "somebody"."""
    for number in count(1):
        name = "somebody" if number == 1 else f"somebody {number}"
        with suppress(KeyExists):
            return world.use.keys.create(BOOTSTRAP, name, role, queues).key.principal
    raise AssertionError


def listed(keys: KeyOperations, by: Principal, limit: int = 2) -> Iterator[ShownKey]:
    cursor = None
    while True:
        page = keys.list(by, limit=limit, cursor=cursor)
        yield from page.shown
        cursor = page.cursor
        if cursor is None:
            return


def test_only_a_hash_of_a_key_is_stored_and_its_secret_is_not_printed(world: World) -> None:
    made = world.use.keys.create(BOOTSTRAP, "sensors", Role.PRODUCER, ("*",))

    record = world.store.record("key", made.key.id)

    assert record is not None
    secret = made.secret.removeprefix(made.key.prefix)
    assert len(secret) == 1 + 160 // 4
    assert made.secret.startswith(made.key.prefix)
    assert secret[1:] not in json.dumps(record.body)
    assert secret[1:] not in repr(made)
    assert "admin_key" not in repr(world.use.keys)


def test_an_id_with_another_secret_is_refused(world: World) -> None:
    one = world.use.keys.create(BOOTSTRAP, "one", Role.ADMIN, ("*",))
    two = world.use.keys.create(BOOTSTRAP, "two", Role.ADMIN, ("*",))
    secret = two.secret.removeprefix(two.key.prefix)

    for forged in (one.key.prefix + secret, one.secret.upper(), one.secret + " ", one.key.id):
        with pytest.raises(Unauthenticated):
            world.use.keys.verify(forged)


def test_a_key_costs_one_read_in_ten_seconds(world: World) -> None:
    made = world.use.keys.create(BOOTSTRAP, "sensors", Role.PRODUCER, ("*",))
    keys = elsewhere(world)
    keys.verify(made.secret)
    world.clock.forward(10)
    with metered() as first:
        keys.verify(made.secret)
    world.clock.forward(9.9)

    with metered() as again:
        for _ in range(100):
            keys.verify(made.secret)

    assert first.read <= 1
    assert (first.write, again.read, again.write) == (0, 0, 0)


def test_the_last_use_is_noted_once_an_hour(world: World) -> None:
    made = world.use.keys.create(BOOTSTRAP, "sensors", Role.PRODUCER, ("*",))
    assert made.key.last_used_at is None
    writes = []
    for _ in range(8):
        with metered() as meter:
            for keys in (world.use.keys, elsewhere(world), elsewhere(world)):
                keys.verify(made.secret)
        writes.append(meter.write)
        world.clock.forward(HOUR / 4)

    noted = next(listed(world.use.keys, BOOTSTRAP)).last_used_at

    assert noted is not None
    assert (world.clock() - noted).total_seconds() == HOUR
    assert writes in ([0] * 8, [1, 0, 0, 0, 1, 0, 0, 0])  # in memory nothing costs


def test_a_request_does_not_fail_for_the_noting_of_its_key(world: World) -> None:
    made = world.use.keys.create(BOOTSTRAP, "sensors", Role.PRODUCER, ("*",))
    keys = hooked(world, before_put_record=dies).use.keys

    assert [keys.verify(made.secret).name for _ in range(2)] == ["sensors"] * 2


def test_a_key_revoked_while_it_is_used_does_not_come_back(world: World) -> None:
    made = world.use.keys.create(BOOTSTRAP, "sensors", Role.PRODUCER, ("*",))
    there = elsewhere(world)
    there.verify(made.secret, note_use=False)
    world.use.keys.revoke(BOOTSTRAP, made.key.id)

    there.verify(made.secret)  # which would note the use

    assert world.store.record("key", made.key.id) is None


def test_a_restricted_admin_sees_and_changes_keys_not_wider_than_its_own(world: World) -> None:
    keys = world.use.keys
    boss = principal(world, "ngsi.*")
    made = {
        name: keys.create(BOOTSTRAP, name, Role.VIEWER, queues)
        for name, queues in {"inside": ("ngsi.a",), "partly": ("ngsi.a", "mail")}.items()
    }
    inside, partly = (one.key.id for one in made.values())

    assert {key.name for key in listed(keys, boss, limit=1)} == {"somebody", "inside"}
    for change in (keys.revoke, keys.rotate):
        refusals = set()
        for key_id in (partly, "key_00000000000000000000"):
            with pytest.raises(Forbidden) as refused:
                change(boss, key_id)
            refusals.add(refused.value.detail.replace(key_id, ""))
        assert len(refusals) == 1, "it tells which keys exist"
    assert keys.verify(keys.rotate(boss, inside).secret).key_id == inside
    keys.revoke(boss, inside)
    assert {key.name for key in listed(keys, BOOTSTRAP)} == {"somebody", "partly"}
    assert _works(keys, made["partly"].secret)


@pytest.mark.gate
def test_no_two_living_keys_have_one_name(world: World) -> None:
    keys = world.use.keys
    first = keys.create(BOOTSTRAP, "sensors", Role.PRODUCER, ("mail",))
    part = principal(world, "ngsi.*")

    with pytest.raises(KeyExists, match=first.key.id) as refused:
        keys.create(BOOTSTRAP, "sensors", Role.VIEWER, ("*",))
    assert refused.value.errors[0].field == "name"
    with pytest.raises(KeyExists) as reported:  # of a key that is none of its business
        keys.create(part, "sensors", Role.VIEWER, ("ngsi.a",))
    assert first.key.id not in reported.value.detail

    keys.revoke(BOOTSTRAP, first.key.id)
    second = keys.create(BOOTSTRAP, "sensors", Role.VIEWER, ("*",))
    assert second.key.id != first.key.id
    assert keys.verify(second.secret).role is Role.VIEWER


# ---------------------------------------------------------------------------------------- expiry


def later(world: World, seconds: float) -> datetime:
    return world.clock() + timedelta(seconds=seconds)


def test_a_key_stops_the_moment_it_expires_wherever_it_is_known(world: World) -> None:
    made = world.use.keys.create(
        BOOTSTRAP, "contractor", Role.WORKER, ("*",), expires_at=later(world, 60)
    )
    there = elsewhere(world)
    world.clock.forward(59.9)
    for keys in (world.use.keys, there):
        assert keys.verify(made.secret).name == "contractor"
        assert keys.known(made.key.id).name == "contractor"

    world.clock.forward(0.1)

    for keys in (world.use.keys, there, elsewhere(world)):
        with pytest.raises(Unauthenticated, match="expired at 2026-11-21T08:01:00Z"):
            keys.verify(made.secret)
        with pytest.raises(Unauthenticated, match="expired"):
            keys.known(made.key.id)
        with pytest.raises(Unauthenticated, match="not known"):  # strangers are told nothing
            keys.verify(made.key.prefix + "_" + "0" * 40)


# -------------------------------------------------------------------------------------- rotation


@pytest.mark.gate
def test_the_secret_before_works_through_the_overlap_and_no_older_one(world: World) -> None:
    keys = world.use.keys
    first = keys.create(BOOTSTRAP, "sensors", Role.PRODUCER, ("*",))
    key_id, hour = first.key.id, timedelta(hours=1)

    def living(*secrets: str) -> list[bool]:
        return [_works(elsewhere(world), secret) for secret in secrets]

    second = keys.rotate(BOOTSTRAP, key_id, overlap=hour)
    assert living(first.secret, second.secret) == [True, True]
    world.clock.forward(HOUR / 2)
    third = keys.rotate(BOOTSTRAP, key_id, overlap=hour)
    assert living(first.secret, second.secret, third.secret) == [False, True, True]
    world.clock.forward(HOUR - 0.1)
    assert living(second.secret, third.secret) == [True, True]
    world.clock.forward(0.1)
    assert living(second.secret, third.secret) == [False, True]

    keys.rotate(BOOTSTRAP, key_id, overlap=hour)
    fifth = keys.rotate(BOOTSTRAP, key_id)
    assert living(third.secret, fifth.secret) == [False, True]


def _works(keys: KeyOperations, secret: str) -> bool:
    try:
        keys.verify(secret)
    except Unauthenticated:
        return False
    return True


def test_revoking_ends_both_secrets(world: World) -> None:
    keys = world.use.keys
    first = keys.create(BOOTSTRAP, "sensors", Role.PRODUCER, ("*",))
    second = keys.rotate(BOOTSTRAP, first.key.id, overlap=timedelta(hours=1))

    keys.revoke(BOOTSTRAP, first.key.id)

    assert not _works(keys, first.secret)
    assert not _works(keys, second.secret)


def test_an_expired_key_is_not_rotated_and_a_missing_one_not_revoked(world: World) -> None:
    until = world.clock() + timedelta(hours=1)
    made = world.use.keys.create(BOOTSTRAP, "brief", Role.PRODUCER, expires_at=until)
    world.clock.forward(3600)
    with pytest.raises(NotFound, match="has expired: make another"):
        world.use.keys.rotate(BOOTSTRAP, made.key.id, overlap=timedelta(0))
    world.use.keys.revoke(BOOTSTRAP, made.key.id)
    with pytest.raises(NotFound):
        world.use.keys.revoke(BOOTSTRAP, made.key.id)


def test_a_key_that_others_keep_rotating_is_unavailable(world: World) -> None:
    made = world.use.keys.create(BOOTSTRAP, "busy", Role.PRODUCER)

    def rotated() -> None:
        world.use.keys.rotate(BOOTSTRAP, made.key.id, overlap=timedelta(0))

    other = overtaken(world, "put_record", rotated)
    with pytest.raises(Unavailable, match="others are changing this key too"):
        other.use.keys.rotate(BOOTSTRAP, made.key.id, overlap=timedelta(0))
