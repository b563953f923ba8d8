"""Asking before acting: every action that has a page of its own asks in the same way."""

import pytest

from tests.console.conftest import Browser


@pytest.mark.parametrize(
    ("path", "back", "grave"),
    [
        ("/console/queues/mail/purge", "/console/queues/mail", True),
        ("/console/tasks/{}/restart", "/console/tasks/{}", False),
        ("/console/tasks/{}/delete", "/console/tasks/{}", True),
        ("/console/create-key", "/console/keys", False),
    ],
)
def test_a_question_has_a_way_out_before_one_button_that_says_what_it_does(
    filled: Browser, path: str, back: str, *, grave: bool
) -> None:
    name = filled.kill("empty")
    main = filled.get(path.format(name)).page.one("main")
    form = main.one("form", class_="confirm")
    out, button = form.one("div", class_="buttons").all("a") + form.all("button")

    assert form.attributes["action"] == path.format(name)
    assert (out.text, out.attributes["href"]) == ("Cancel", back.format(name))
    assert button.text not in ("", "OK", "Yes")
    assert button.has({"class_": "danger"}) is grave
    assert len(main.all("h1")) == 1
