"""What is deleted in the console can be brought back by the button of its message."""

from headrace.domain.access import Role
from tests.console.conftest import Browser

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
    assert "That cannot be undone" in admin.get(f"{HERE}/delete").text
