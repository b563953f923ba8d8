"""Recounting a queue, and rebuilding its index, from its page."""

from dataclasses import replace

import pytest

from headrace.domain.access import Role
from tests.console.conftest import Browser

HERE = "/console/queues/mail?tab=repair"


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
    number = off.count("mail")

    done = operator.follow(operator.submit(operator.get(HERE).page, "/mail/recount"))

    assert f"{number} tasks counted. The counters were off by 3 and are corrected." in done.text
    [entry] = off.audited("recount")
    assert (entry.actor, entry.matched, entry.changed) == ("the operator", number, 3)
    off.clock.forward(1)
    again = operator.follow(operator.submit(operator.get(HERE).page, "/mail/recount"))
    assert "The counters were right." in again.text


INDEX = "/mail/reindex"


def test_an_index_is_built_anew_by_a_button_that_is_there_with_an_index(filled: Browser) -> None:
    operator = filled.as_role(Role.OPERATOR)
    assert INDEX not in operator.get(HERE).body
    mail = filled.use.queues.get("mail")
    filled.use.queues.replace("mail", replace(mail.settings, indexed_fields=("tag:tenant",)))

    done = operator.follow(operator.submit(operator.get(HERE).page, INDEX))

    assert "The index is being rebuilt. Until then, lists read every task." in done.text
    [entry] = filled.audited("reindex")
    assert (entry.actor, entry.queue) == ("the operator", "mail")
    assert filled.as_role(Role.VIEWER).get(HERE).status == 403
