"""Counting a queue anew from its page."""

import pytest

from headrace.domain.access import Role
from headrace.ops.shared.audit import AuditFilter
from tests.console.conftest import Browser

HERE = "/console/queues/mail"


@pytest.fixture
def off(filled: Browser) -> Browser:
    """Give a queue of whose tasks three were never counted."""
    filled.record()
    filled.put("mail", "{}", "{}", "{}")
    assert filled.stream is not None
    filled.stream.taken()
    filled.clock.forward(1)
    return filled


def test_counters_that_are_off_are_mended(off: Browser) -> None:
    operator = off.as_role(Role.OPERATOR)
    number = off.use.inspect.count("mail").count

    done = operator.follow(operator.submit(operator.get(HERE).page, "/mail/recount"))

    assert f"{number} tasks counted. The counters were off by 3 and are mended." in done.text
    [entry] = off.use.audit.list(AuditFilter(action="recount")).shown
    assert (entry.actor, entry.matched, entry.changed) == ("the operator", number, 3)
    off.clock.forward(1)
    again = operator.follow(operator.submit(operator.get(HERE).page, "/mail/recount"))
    assert "The counters were right." in again.text


def test_what_takes_longer_than_a_page_may_goes_on_by_a_button(off: Browser) -> None:
    off.use.recounting.patience = -1
    entries = off.use.recounting.store.entries

    def slowly(*given: object, **named: object) -> object:
        off.clock.forward(6)
        return entries(*given, **named)  # type: ignore[arg-type]

    off.use.recounting.store.entries = slowly  # type: ignore[method-assign, assignment]

    shown = off.submit(off.get(HERE).page, "/mail/recount")
    pages = 1
    while shown.status == 200:
        assert "counted so far" in shown.text
        shown = off.submit(shown.page, "/mail/recount")
        pages += 1

    assert pages > 1
    assert "off by 3" in off.follow(shown).text


def test_who_may_only_look_is_offered_no_recount(off: Browser) -> None:
    viewer = off.as_role(Role.VIEWER)

    assert "/mail/recount" not in viewer.get(HERE).body
