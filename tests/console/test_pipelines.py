"""Pipelines and charts: pictures with the same numbers beside them."""

import pytest

from headrace.domain.access import Role
from headrace.ops.delivery.reports import ReportStatus
from tests.console.conftest import Browser

NOTHING = "\u2013"


@pytest.fixture
def moving(filled: Browser) -> Browser:
    """Give an admin a console in which tasks went from queue to queue."""
    for source, target, count in (("mail", "ngsi.notify", 3), ("ngsi.notify", "empty", 2)):
        filled.put(source, *["{}"] * count)
        for task in filled.take(source, count):
            filled.say(task, ReportStatus.MOVED, to_queue=target)
    return filled


def test_flows_are_told_in_a_picture_and_in_a_table(moving: Browser) -> None:
    [tab] = [a for a in moving.get("/console").page.all("a") if a.text == "Pipelines"]
    page = moving.get(tab.attributes["href"]).page

    assert [row.text for row in page.one("tbody").all("tr")] == [
        "mail ngsi.notify 3 3",
        "ngsi.notify empty 2 2",
    ]
    picture = page.one("svg", class_="flowchart")
    assert "2 flows between 3 queues; the strongest goes from mail to ngsi.notify" in picture.text
    assert {a.attributes["href"] for a in picture.all("a")} == {
        f"/console/queues/{name}" for name in ("mail", "ngsi.notify", "empty")
    }
    assert len(picture.all("path", class_="flow")) == 2


def test_a_flow_to_a_queue_of_others_is_not_told(moving: Browser) -> None:
    text = moving.as_role(Role.VIEWER, "ngsi.*", "empty").get("/console/pipelines").text

    assert "ngsi.notify empty 2 2" in text
    assert "mail" not in text


def test_the_charts_have_a_table_of_the_same_numbers(moving: Browser) -> None:
    page = moving.get("/console/queues/mail").page
    figures = page.all("figure", class_="chart")

    assert [figure.one("strong").text for figure in figures] == [
        *("Events", "Wait", "Run", "Waiting", "Dead"),
    ]
    events, wait, _, waiting, dead = figures
    assert [cell.text for cell in dead.one("tbody").all("tr")[-1].all("td")] == ["1", "0"]
    assert len(events.one("tbody").all("tr")) == 60
    last = [cell.text for cell in events.one("tbody").all("tr")[-1].all("td")]
    assert last == ["8", "7", "1", "1", "3"]
    assert waiting.one("tbody").all("tr")[-1].all("td")[1].text == "1"
    assert wait.one("tbody").all("tr")[0].all("td")[0].text == NOTHING
    for figure in figures:
        assert figure.one("svg", class_="plot").attributes["aria-label"]
    names = [name.attributes["class"] for name in events.all("path", class_="series")]
    assert len(set(names)) == 5
    assert events.one("p", class_="legend").text.endswith("failed moved on")
