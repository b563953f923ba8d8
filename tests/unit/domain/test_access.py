"""Roles, permissions and patterns: the table of the contract, and what ``*`` means."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.access import (
    Permission,
    Principal,
    Role,
    common_head,
    covers,
    key_name_fault,
)
from headrace.domain.errors import Forbidden

VIEWER, OPERATOR, PRODUCER, WORKER, ADMIN = Role

patterns = st.text("ab*", max_size=6)
names = st.text("ab", max_size=8)


def key(role: Role = Role.ADMIN, *queues: str) -> Principal:
    return Principal("key_1", "somebody", role, queues or ("*",))


def regex(pattern: str) -> re.Pattern[str]:
    """Say the same as a regular expression."""
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("mail", "mail", True),
        ("mail", "mail2", False),
        ("mail", "Mail", False),
        ("*", "mail", True),
        ("ngsi.*", "ngsi.notify", True),
        ("ngsi.*", "ngsi", False),
        ("ngsi.*", "my.ngsi.notify", False),
        ("*.dead", "mail.dead2", False),
        ("a*b*c", "a1b2b3c", True),
        ("a*b*c", "acb", False),
        ("a*a", "a", False),
        ("*ab*ab*", "abab", True),
        ("ma?l", "mail", False),
        ("m.il", "mail", False),
        ("*", "two\nlines", True),
    ],
)
def test_a_star_is_any_text_and_everything_else_is_itself(
    pattern: str, name: str, *, covered: bool
) -> None:
    assert covers(pattern, name) is covered


@given(patterns, names)
def test_a_pattern_matches_the_whole_name_as_the_same_expression_would(
    pattern: str, name: str
) -> None:
    assert covers(pattern, name) == bool(regex(pattern).fullmatch(name))


def test_a_key_is_not_wider_when_each_of_its_patterns_is_covered() -> None:
    boss = key(ADMIN, "ngsi.*", "mail")

    assert boss.covers_all(["ngsi.*"])
    assert boss.covers_all(["ngsi.a*b", "mail", "ngsi.notify"])
    assert not boss.covers_all(["ngsi*"])
    assert not boss.covers_all(["mail", "mail*"])
    assert not boss.covers_all(["*"])


def test_a_permission_is_held_for_the_keys_queues_only() -> None:
    worker = key(WORKER, "ngsi.*")

    assert worker.may(Permission.WORK)
    assert worker.may(Permission.WORK, "ngsi.notify")
    assert not worker.may(Permission.WORK, "mail")
    assert not worker.may(Permission.OPERATE, "ngsi.notify")
    worker.require(Permission.WORK, "ngsi.notify", "ngsi.entities")
    with pytest.raises(Forbidden, match="not for queue mail"):
        worker.require(Permission.WORK, "ngsi.notify", "mail")


def test_a_refusal_says_which_role_would_do() -> None:
    with pytest.raises(Forbidden) as refused:
        key(PRODUCER, "mail").require(Permission.OPERATE, "other")

    assert refused.value.detail == (
        "a producer key may not change tasks, pauses, schedules and workers by hand, or read the "
        "audit; that takes the role operator or admin"
    )
    with pytest.raises(Forbidden, match=r"that takes the role admin$"):
        key(OPERATOR).require(Permission.ADMINISTER)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        (" ", "must not be empty"),
        ("k" * 300, "must be at most"),
        ("a\u202eb", "no control characters"),
        ("IAM", "is the name of callers with IAM rights"),
        ("ci", None),
    ],
)
def test_a_name_that_no_key_may_have(name: str, fault: str | None) -> None:
    found = key_name_fault(name)

    assert (found is None) if fault is None else fault in (found or "")


@pytest.mark.parametrize(
    ("given", "head"), [([], ""), (["mail"], "mail"), (["mail*", "main"], "mai"), (["*"], "")]
)
def test_the_text_that_all_names_of_patterns_begin_with(given: list[str], head: str) -> None:
    assert common_head(given) == head
