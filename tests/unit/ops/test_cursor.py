"""A cursor goes on where its own list was; whatever else it is, it is refused by name."""

import base64
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.domain.errors import InvalidRequest
from headrace.domain.push import Target
from headrace.domain.queue_settings import QueueSettings
from headrace.ops.shared.audit import changed_settings
from headrace.ops.shared.paging import Cursors
from headrace.runtime.wiring import Settings, build
from headrace.store.sqlite import SqliteStore


def cursors_of(admin_key: str) -> Cursors:
    """Return the cursors of a deployment."""
    return build(Settings(admin_key=admin_key), SqliteStore(":memory:")).cursors


OURS = cursors_of("a secret of the deployment")
SCOPE = "tasks mail ENQUEUED False"
STATE = ["2026-11-21T08:00:00+00:00", 1, {"0": ["2026-11-21T08:00:00+00:00", "order-1"]}]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def refused(scope: str, cursor: str, cursors: Cursors = OURS) -> list[str]:
    """Return the fields that are named when *cursor* is refused."""
    with pytest.raises(InvalidRequest) as refusal:
        cursors.read(scope, cursor)
    return [error.field for error in refusal.value.errors]


@given(st.text(), json_values)
def test_a_cursor_gives_back_what_was_put_in(scope: str, state: Any) -> None:
    cursor = OURS.write(scope, state)

    assert OURS.read(scope, cursor) == state
    assert cursor.replace("-", "").replace("_", "").isalnum()  # needs no quoting in a URL


def test_a_cursor_shows_nothing_of_where_it_leads() -> None:
    """A page may end at what the caller is not shown."""
    cursor = OURS.write(SCOPE, [*STATE, "somebody.elses.queue" * 10])
    blob = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))

    for part in (b"2026", b"order", b"queue", b'",', b"[["):
        assert part not in blob
    assert cursor != OURS.write("another list", STATE)
    assert cursor == OURS.write(SCOPE, [*STATE, "somebody.elses.queue" * 10])  # and it stays so


@given(st.text())
def test_a_cursor_of_another_list_or_filter_is_refused(scope: str) -> None:
    assume(scope != SCOPE)

    assert refused(scope, OURS.write(SCOPE, STATE)) == ["cursor"]


def test_a_cursor_of_another_deployment_is_refused() -> None:
    theirs = cursors_of("another secret")

    assert refused(SCOPE, OURS.write(SCOPE, STATE), theirs) == ["cursor"]


# -- changed settings in the audit -----------------------------------------------------------------


def test_only_what_differs_is_kept_by_its_path() -> None:
    before = QueueSettings(target=Target(url="https://a.example", headers={"X": "1", "Y": "1"}))
    after = QueueSettings(target=Target(url="https://b.example", headers={"X": "1", "Y": "2"}))

    assert changed_settings(before, before) == ({}, {})
    assert changed_settings(before, after) == (
        {"target.headers.Y": "********", "target.url": "https://a.example"},
        {"target.headers.Y": "******** (another)", "target.url": "https://b.example"},
    )
