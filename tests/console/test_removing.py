"""Purging and deleting a queue: only by typing its name."""

import pytest

from headrace.domain.access import Role
from headrace.domain.task import State
from tests.console.conftest import Browser


@pytest.mark.parametrize("path", ["purge", "delete"])
@pytest.mark.parametrize("typed", ["", "Mail"])
def test_a_mistyped_name_removes_nothing(filled: Browser, path: str, typed: str) -> None:
    before = filled.count("mail")
    form = filled.get(f"/console/queues/mail/{path}").page
    refused = filled.submit(form, f"/mail/{path}", name=typed)

    assert refused.status == 400
    assert "must be exactly mail" in refused.page.one("p", class_="wrong").text
    assert filled.count("mail") == before


def test_a_queue_is_purged_of_its_dead_by_typing_its_name(filled: Browser) -> None:
    form = filled.get("/console/queues/mail/purge").page
    done = filled.follow(filled.submit(form, "/mail/purge", name="mail"))

    assert "1 task of mail removed: dead tasks." in done.text
    counts = filled.use.inspect.count("mail").by_state
    assert counts[State.DEAD] == 0
    assert counts[State.ENQUEUED] > 0
    [entry] = filled.audited("purge")
    assert (entry.queue, entry.changed) == ("mail", 1)


def test_a_queue_is_deleted_by_typing_its_name(filled: Browser) -> None:
    form = filled.get("/console/queues/mail/delete").page
    done = filled.follow(filled.submit(form, "/mail/delete", name="mail"))

    assert "Queue mail deleted." in done.text
    assert filled.get("/console/queues/mail").status == 404


def test_roles_without_the_right_see_no_button_and_are_refused(filled: Browser) -> None:
    operator = filled.as_role(Role.OPERATOR)

    assert "Purge…" in operator.get("/console/queues/mail?tab=settings").text
    assert "Delete queue…" not in operator.get("/console/queues/mail?tab=settings").text
    assert operator.get("/console/queues/mail/delete").status == 403
    assert filled.as_role(Role.OPERATOR, "sms").get("/console/queues/mail/purge").status == 403
    viewer = filled.as_role(Role.VIEWER)
    assert viewer.get("/console/queues/mail/purge").status == 403
    assert "Purge" not in viewer.get("/console/queues/mail?tab=settings").text
    forged = {"name": "mail", "tasks": "all", "token": "forged"}
    assert filled.post("/console/queues/mail/purge", forged).status == 403
    assert filled.get("/console/queues/nothing/purge").status == 404


# -- undo ------------------------------------------------------------------------------------------

HERE = "/console/queues/mail"


def test_a_purge_comes_back_too_and_the_queue_itself_does_not(filled: Browser) -> None:
    operator = filled.as_role(Role.OPERATOR)
    before = filled.count("mail")
    asked = operator.get(f"{HERE}/purge")

    purged = operator.follow(operator.submit(asked.page, "/mail/purge", tasks="all", name="mail"))

    assert filled.count("mail") == 0
    operator.follow(operator.submit(purged.page, "/console/undo"))
    assert filled.count("mail") == before
    admin = filled.as_role(Role.ADMIN)
    assert "This cannot be undone" in admin.get(f"{HERE}/delete").text
