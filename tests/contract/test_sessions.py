"""What every store promises about sessions in the console: whoever ends one has ended it."""

from contextlib import suppress
from datetime import timedelta
from itertools import count

import pytest

from headrace.domain.access import Role
from headrace.domain.errors import RateLimited, Unauthenticated, Unavailable
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.ops.operators.sessions import Sessions, source_of
from headrace.ops.shared.audit import AuditFilter, AuditRecord
from headrace.store.records.keys import IDLE, LASTS, SESSIONS, Session
from tests.contract.conftest import World, dies, hooked, new_world, overtaken

SOURCE = "192.0.2.7"
MINUTE = timedelta(minutes=1)


def sign_in(world: World, presented: str = "test") -> Session:
    return world.use.sessions.sign_in(presented, source=SOURCE, request_id="r1")


def key(world: World, name: str = "ada") -> tuple[str, str]:
    """Make a key; return its id and its secret."""
    made = world.use.keys.create(BOOTSTRAP, name, Role.OPERATOR)
    return made.key.id, made.secret


def elsewhere(world: World) -> Sessions:
    """Give the same sessions as another process knows them."""
    return new_world(world.store, world.clock).use.sessions


def is_open(sessions: Sessions, session: Session, *, active: bool = True) -> bool:
    try:
        sessions.resume(session.key_id, session.nonce, active=active)
    except Unauthenticated:
        return False
    return True


def audited(world: World) -> list[AuditRecord]:
    entries = world.use.audit.list(AuditFilter()).shown
    return [entry for entry in entries if "sign" in entry.action]


def test_a_session_is_known_everywhere_with_the_key_it_was_begun_with(world: World) -> None:
    key_id, secret = key(world)
    begun = sign_in(world, secret)

    session, by = elsewhere(world).resume(key_id, begun.nonce, active=True)

    assert (by.key_id, by.name, by.role) == (key_id, "ada", Role.OPERATOR)
    assert session.nonce == begun.nonce
    assert secret not in str(world.store.record(SESSIONS, session.name))


def test_signing_out_ends_one_session_and_no_other(world: World) -> None:
    first, second = sign_in(world), sign_in(world)
    other = elsewhere(world)
    assert is_open(other, first)

    world.use.sessions.sign_out(first)

    assert not is_open(world.use.sessions, first)
    assert not is_open(other, first)
    assert is_open(other, second)


def test_revoking_a_key_ends_all_its_sessions_at_once_wherever_they_are(world: World) -> None:
    key_id, secret = key(world)
    _, other_secret = key(world, "bob")
    mine = [sign_in(world, secret) for _ in range(3)]
    bobs, own = sign_in(world, other_secret), sign_in(world)
    other = elsewhere(world)
    assert all(is_open(other, each) for each in [*mine, bobs, own])  # and the keys are known there

    world.use.keys.revoke(BOOTSTRAP, key_id)

    assert not any(is_open(other, each) for each in mine)
    assert is_open(other, bobs)
    assert is_open(other, own)


def test_a_key_given_another_secret_ends_what_was_begun_with_the_one_before(world: World) -> None:
    key_id, secret = key(world)
    session = sign_in(world, secret)
    rotated = world.use.keys.rotate(BOOTSTRAP, key_id, overlap=timedelta(minutes=10))
    assert is_open(world.use.sessions, session)

    world.clock.forward(timedelta(minutes=10))

    assert not is_open(world.use.sessions, session)
    assert is_open(world.use.sessions, sign_in(world, rotated.secret))


def test_a_session_ends_an_hour_after_the_last_page(world: World) -> None:
    session = sign_in(world)
    for _ in range(5):
        world.clock.forward(IDLE - MINUTE)
        assert is_open(world.use.sessions, session)

    world.clock.forward(IDLE)

    assert not is_open(world.use.sessions, session)


@pytest.mark.in_process
def test_a_session_ends_after_eight_hours_however_busy(world: World) -> None:
    session = sign_in(world)
    for _ in range(LASTS // MINUTE - 1):
        world.clock.forward(MINUTE)
        assert is_open(world.use.sessions, session)

    world.clock.forward(MINUTE)

    assert not is_open(world.use.sessions, session)


@pytest.mark.gate
@pytest.mark.parametrize("way", ["sign out", "revoke"])
def test_a_session_that_ends_while_a_page_notes_its_use_stays_ended(world: World, way: str) -> None:
    key_id, secret = key(world)
    session = sign_in(world, secret)
    world.clock.forward(2 * MINUTE)

    def end() -> None:
        if way == "revoke":
            world.use.keys.revoke(BOOTSTRAP, key_id)
        else:
            world.use.sessions.sign_out(session)

    is_open(hooked(world, after_record=end).use.sessions, session)

    assert not is_open(world.use.sessions, session)
    assert world.store.record(SESSIONS, session.name) is None


def test_whoever_is_slowed_down_does_not_fill_the_audit(world: World) -> None:
    refusals: list[type[Exception]] = []
    for _ in range(30):
        with pytest.raises((Unauthenticated, RateLimited)) as refusal:
            sign_in(world, "wrong")
        refusals.append(refusal.type)

    assert refusals.count(Unauthenticated) == len(audited(world)) == 10


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("not an address", "unknown"),
    ],
)
def test_wrong_keys_are_counted_by_address_or_network(address: str, source: str) -> None:
    assert source_of(address) == source


def test_a_sign_in_that_failed_for_another_reason_than_the_key_does_not_count(
    world: World,
) -> None:
    _, secret = key(world)
    calls = count()

    def second_dies() -> None:
        if next(calls) == 1:
            dies()

    broken = overtaken(world, "record", second_dies)
    with pytest.raises(Unavailable):
        sign_in(broken, secret)
    for _ in range(20):
        assert is_open(world.use.sessions, sign_in(world, secret))


def test_too_many_sign_ins_from_one_address_at_once_are_refused(world: World) -> None:
    def wrong() -> None:
        with suppress(Unauthenticated, RateLimited):
            sign_in(world, "wrong")
        world.clock.forward(3600)

    other = overtaken(world, "put_record", wrong)
    with pytest.raises(RateLimited, match="too many"):
        sign_in(other)
