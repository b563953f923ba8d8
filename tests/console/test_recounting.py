"""Recounting a queue, and rebuilding its index, from its page."""

from dataclasses import replace

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

    assert f"{number} tasks counted. The counters were off by 3 and are corrected." in done.text
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

    shown = off.follow(off.submit(off.get(f"{HERE}?state=READY").page, "/mail/recount"))
    pages = 1
    while "counted so far" in shown.text:
        assert "Continue recount" in shown.text
        shown = off.follow(off.submit(shown.page, "/mail/recount"))
        pages += 1

    assert pages > 1
    assert "off by 3" in shown.text
    assert shown.url == f"{HERE}?state=READY"


def test_who_may_only_look_is_offered_no_recount(off: Browser) -> None:
    viewer = off.as_role(Role.VIEWER)

    assert "/mail/recount" not in viewer.get(HERE).body


INDEX = "/mail/reindex"


def test_an_index_is_built_anew_by_a_button_that_is_there_with_an_index(filled: Browser) -> None:
    operator = filled.as_role(Role.OPERATOR)
    assert INDEX not in operator.get(HERE).body
    mail = filled.use.queues.get("mail")
    filled.use.queues.replace("mail", replace(mail.settings, indexed_fields=("tag:tenant",)))

    done = operator.follow(operator.submit(operator.get(HERE).page, INDEX))

    assert "The index is being rebuilt. Until then, lists read every task." in done.text
    [entry] = filled.use.audit.list(AuditFilter(action="reindex")).shown
    assert (entry.actor, entry.queue) == ("the operator", "mail")
    assert INDEX not in filled.as_role(Role.VIEWER).get(HERE).body


def test_whoever_asks_for_an_index_of_nothing_is_told_what_to_do(filled: Browser) -> None:
    mail = filled.use.queues.get("mail")
    filled.use.queues.replace("mail", replace(mail.settings, indexed_fields=("tag:tenant",)))
    page = filled.get(HERE).page
    filled.use.queues.replace("mail", mail.settings)  # a colleague gives the index up

    refused = filled.submit(page, INDEX)

    assert refused.status == 409
    assert "has no indexed_fields" in refused.text
    assert "headrace queue edit mail --index tag:tenant" in refused.text
