"""The index of values that every store keeps: entries come and go, and are found in order."""

from headrace.domain.indexing import Match, field_digest, term_of
from tests.contract.conftest import World

ACME = term_of("tag:tenant", "acme")
OTHER = term_of("tag:tenant", "other")


def matches(world: World, term: str, queue: str = "mail", **more: object) -> tuple[list[str], bool]:
    ids, rest = world.store.matches(queue, term, **{"limit": 10, **more})  # type: ignore[arg-type]
    return list(ids), rest


def test_entries_are_found_by_their_term_in_the_order_of_ids(world: World) -> None:
    there = [Match("mail", ACME, f"t{number}") for number in (3, 1, 2)]
    there += [Match("mail", OTHER, "t1"), Match("sms", ACME, "t9")]
    world.store.note_matches(there, ())
    world.store.note_matches(there, ())  # again

    assert matches(world, ACME) == (["t1", "t2", "t3"], False)
    assert matches(world, ACME, descending=True) == (["t3", "t2", "t1"], False)
    assert matches(world, ACME, after="t1", limit=1) == (["t2"], True)
    assert matches(world, ACME, after="t3", descending=True) == (["t2", "t1"], False)
    assert matches(world, ACME, queue="none") == ([], False)


def test_entries_of_a_task_go_by_their_terms(world: World) -> None:
    world.store.note_matches([Match("mail", term, "t1") for term in (ACME, OTHER)], ())
    world.store.note_matches([Match("mail", ACME, "t2"), Match("sms", ACME, "t1")], ())

    gone = [Match("mail", term, "t1") for term in (ACME, OTHER)]
    world.store.note_matches([Match("mail", ACME, "t3")], gone)
    world.store.note_matches((), gone)  # again

    assert matches(world, ACME) == (["t2", "t3"], False)
    assert matches(world, OTHER) == ([], False)
    assert matches(world, ACME, queue="sms") == (["t1"], False)


def test_more_entries_than_one_request_takes_are_written(world: World) -> None:
    there = [Match("mail", ACME, f"t{number:03}") for number in range(60)]
    world.store.note_matches(there, ())
    world.store.note_matches((), there[:30])

    assert matches(world, ACME, limit=100) == ([one.task_id for one in there[30:]], False)


def test_a_field_is_taken_out_step_by_step(world: World) -> None:
    values = [term_of("tag:tenant", f"v{number}") for number in range(40)]
    kept = term_of("tag:city", "v1")
    world.store.note_matches([Match("mail", term, "t1") for term in (*values, kept)], ())
    steps = 0
    while world.store.drop_matches("mail", field_digest("tag:tenant"), limit=15):
        steps += 1

    assert steps >= 2
    assert all(matches(world, term) == ([], False) for term in values)
    assert matches(world, kept) == (["t1"], False)
