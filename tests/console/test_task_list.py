"""The list of a queue's tasks: how many match, and the way straight to it."""

import pytest

from headrace.domain.access import Role
from tests.console.conftest import Browser, Element


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", "8 tasks"),
        ("?state=scheduled", "3 match"),
        ("?state=dead", "1 matches"),
        ("?limit=2&q=tag:service=smartcity", "2+ match"),
    ],
)
def test_the_bar_of_actions_says_how_many_match(filled: Browser, query: str, says: str) -> None:
    filled.put("mail", *['{"to": "eve"}'] * 3, tags={"service": "smartcity"})
    filled.record()

    assert "all that match" not in filled.get("/console/queues/mail").text
    page = filled.get(f"/console/queues/mail{query}").page
    assert page.one("span", class_="matched").text == says


def heads(page: Element) -> dict[str, tuple[str, str]]:
    """Return how the tasks' table is sorted by each head now, and where its link leads."""
    table = page.one("table", class_="tasks")
    found = {}
    for head in table.one("thead").all("th"):
        url = [link.attributes["href"] for link in head.all("a", class_="sort")]
        found[head.text] = (head.attributes.get("aria-sort", ""), "".join(url))
    return found


def ids(page: Element) -> list[str]:
    """Return the tasks in the order of their rows."""
    return [box.attributes["value"] for box in page.all("input", name="id")]


def test_the_head_of_the_time_turns_the_order_round(filled: Browser) -> None:
    page = filled.get("/console/queues/mail?state=SUCCEEDED").page
    newest = ids(page)
    order, url = heads(page)["Succeeded ▼"]
    assert order == "descending"

    turned = filled.get(url).page
    assert heads(turned)["Succeeded ▲"][0] == "ascending"
    assert ids(turned) == newest[::-1]


def test_the_list_names_function_and_arguments_to_those_who_may_see_them(admin: Browser) -> None:
    admin.queue("mail")
    [task_id] = admin.put("mail", '{"task":"mail.send","args":{"to":"lou"}}')
    page = admin.get("/console/queues/mail").page

    first = page.one("table", class_="tasks").all("td")[1]
    assert first.text.startswith('mail.send (to="lou")')
    link = first.one("a", class_="call")
    assert link.attributes["href"] == f"/console/tasks/{task_id}"
    viewer = admin.as_role(Role.VIEWER).get("/console/queues/mail")
    assert viewer.page.all("a", class_="call") == []
    assert "lou" not in viewer.page.one("table", class_="tasks").text
