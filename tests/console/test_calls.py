"""The first column of a list says what each task does: its function and short arguments."""

import pytest

from console.chalicelib.calls import CallLine, call_line
from headrace.domain.access import Role
from tests.console.conftest import Browser


@pytest.mark.parametrize(
    ("payload", "line"),
    [
        (
            '{"task":"mail.send","args":{"to":"ada","n":12345678901234567890,"x":1.10}}',
            CallLine("mail.send", '(to="ada", n=12345678901234567890, x=1.10)'),
        ),
        ('{"task": "a.b"}', CallLine("a.b", "()")),
        ('{"to":\n  "ada"}', CallLine("", '{"to": "ada"}')),
        ("{}", None),
        ("null", None),
        (None, None),
        ("[" * 5000, CallLine("", "[" * 79 + "…")),
        ('{"task": 7}', CallLine("", '{"task": 7}')),
    ],
)
def test_a_payload_is_told_in_a_line(payload: str | None, line: CallLine | None) -> None:
    assert call_line(payload) == line


def test_long_arguments_are_cut() -> None:
    line = call_line('{"task":"f","args":{"text":"' + "x" * 1000 + '","more":' + "9" * 90 + "}}")

    assert line is not None
    assert line.arguments.startswith('(text="xxxxxxxxxxxxxxxxxxxxxx…, more=999')
    assert len(line.arguments) <= 82


def test_the_list_names_function_and_arguments_to_those_who_may_see_them(admin: Browser) -> None:
    admin.queue("mail")
    [task_id] = admin.put("mail", '{"task":"mail.send","args":{"to":"ada"}}')
    page = admin.get("/console/queues/mail").page

    first = page.one("table", class_="tasks").all("td")[1]
    assert first.text.startswith('mail.send (to="ada")')
    link = first.one("a", class_="call")
    assert link.attributes["href"] == f"/console/tasks/{task_id}"
    viewer = admin.as_role(Role.VIEWER).get("/console/queues/mail")
    assert viewer.page.all("a", class_="call") == []
    assert "ada" not in viewer.page.one("table", class_="tasks").text


def test_a_list_fetches_no_payload_that_is_kept_elsewhere(admin: Browser) -> None:
    admin.queue("mail")
    admin.put("mail", '{"task":"mail.send","args":{"to":"' + "x" * 60_000 + '"}}')
    before = admin.get("/console/queues/mail")

    assert before.status == 200
    assert "x" * 100 not in before.body
