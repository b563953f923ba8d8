"""What is deleted in the console can be brought back by the button of its message."""

from headrace.domain.access import Role
from tests.console.conftest import Browser

HERE = "/console/queues/mail"


def test_a_task_that_was_deleted_comes_back_by_a_button(filled: Browser) -> None:
    (task_id,) = filled.put("mail", "{}")
    operator = filled.as_role(Role.OPERATOR)
    asked = operator.get(f"/console/tasks/{task_id}/delete")
    assert "an undo brings it back." in asked.text

    deleted = operator.follow(operator.submit(asked.page, f"/tasks/{task_id}/delete"))

    assert operator.get(f"/console/tasks/{task_id}").status == 404
    back = operator.follow(operator.submit(deleted.page, "/console/undo"))
    assert "1 task back." in back.text
    assert "Undo" not in back.text
    assert operator.get(f"/console/tasks/{task_id}").status == 200


def test_a_purge_comes_back_too_and_the_queue_itself_does_not(filled: Browser) -> None:
    operator = filled.as_role(Role.OPERATOR)
    before = filled.count("mail")
    asked = operator.get(f"{HERE}/purge")

    purged = operator.follow(operator.submit(asked.page, "/mail/purge", tasks="all", name="mail"))

    assert filled.count("mail") == 0
    operator.follow(operator.submit(purged.page, "/console/undo"))
    assert filled.count("mail") == before
    admin = filled.as_role(Role.ADMIN)
    assert "That cannot be undone" in admin.get(f"{HERE}/delete").text
