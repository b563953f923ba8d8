"""Pipelines and charts: pictures with the same numbers beside them."""

from datetime import timedelta
from itertools import pairwise

import pytest

from console.chalicelib import charts
from console.chalicelib.flowchart import BOX_HEIGHT, BOX_WIDTH, flowchart
from headrace.domain.access import Role
from headrace.history.flows import Flow
from headrace.ops.delivery.reports import ReportStatus
from tests.console.conftest import Browser


@pytest.fixture
def moving(filled: Browser) -> Browser:
    """Give an admin a console in which tasks went from queue to queue."""
    for source, target, count in (("mail", "ngsi.notify", 3), ("ngsi.notify", "empty", 2)):
        filled.put(source, *["{}"] * count)
        for task in filled.take(source, count):
            filled.say(task, ReportStatus.MOVED, to_queue=target)
    return filled


def test_an_empty_page_says_what_would_be_here(filled: Browser) -> None:
    assert "joined by the tasks that went from one to another" in (
        filled.get("/console/pipelines").text
    )


def test_flows_are_told_in_a_picture_and_in_a_table(moving: Browser) -> None:
    page = moving.get("/console/pipelines").page

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


def test_flows_of_yesterday_are_gone(moving: Browser) -> None:
    moving.get("/console")
    moving.clock.forward(timedelta(hours=2))
    assert (
        "mail ngsi.notify 0 3" in moving.sign_in().get("/console/pipelines").page.one("tbody").text
    )
    moving.clock.forward(timedelta(hours=23))
    assert "would be here" in moving.sign_in().get("/console/pipelines").text


def test_a_flow_to_a_queue_of_others_is_not_told(moving: Browser) -> None:
    text = moving.as_role(Role.VIEWER, "ngsi.*", "empty").get("/console/pipelines").text

    assert "ngsi.notify empty 2 2" in text
    assert "mail" not in text


def flows(*pairs: tuple[str, str]) -> list[Flow]:
    return [Flow(source, target, 1, 10) for source, target in pairs]


def test_queues_stand_right_of_what_feeds_them_and_none_on_another() -> None:
    edges = flows(("a", "b"), ("b", "c"), ("a", "c"), ("x", "c"), ("c", "a"), ("b", "y"))
    drawn = flowchart(edges, {}, dict.fromkeys("abcxy", "/"))

    at = {box.name: box for box in drawn.boxes}
    assert at["a"].x < at["b"].x < at["c"].x
    assert at["x"].x < at["c"].x
    for column in {box.x for box in drawn.boxes}:
        heights = sorted(box.y for box in drawn.boxes if box.x == column)
        assert all(low + BOX_HEIGHT < high for low, high in pairwise(heights))
    assert max(box.x for box in drawn.boxes) + BOX_WIDTH <= drawn.width
    assert max(box.y for box in drawn.boxes) + BOX_HEIGHT <= drawn.height


def test_a_queue_that_only_feeds_itself_in_a_circle_is_drawn() -> None:
    drawn = flowchart(flows(("a", "b"), ("b", "a")), {}, dict.fromkeys("ab", "/"))

    assert len(drawn.joins) == 2
    assert max(join.y for join in drawn.joins) < drawn.height


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
    assert waiting.one("tbody").all("tr")[-1].all("td")[0].text == "1"
    assert wait.one("tbody").all("tr")[0].all("td")[0].text == charts.NOTHING
    for figure in figures:
        assert figure.one("svg", class_="plot").attributes["aria-label"]
    names = [name.attributes["class"] for name in events.all("path", class_="series")]
    assert len(set(names)) == 5
    assert [one.text for one in events.one("svg", class_="ends").all("text")][-1] == "moved on"


def test_what_was_cancelled_is_drawn_beside_what_died(moving: Browser) -> None:
    for task_id in moving.put("mail", "{}", "{}"):
        moving.use.cancelling.cancel(task_id)

    dead = moving.get("/console/queues/mail").page.all("figure", class_="chart")[-1]

    assert [cell.text for cell in dead.one("tbody").all("tr")[-1].all("td")] == ["1", "2"]
    assert (
        "dead at most 1 a minute; cancelled at most 2 a minute"
        in dead.one("svg", class_="plot").attributes["aria-label"]
    )
    moving.queue("calm")
    names = [
        one.one("strong").text for one in moving.get("/console/queues/calm").page.all("figure")
    ]
    assert names == ["Events", "Wait", "Run", "Waiting"]


def test_the_charts_go_back_an_hour_or_a_day_and_keep_what_else_is_asked(moving: Browser) -> None:
    hour = moving.get("/console/queues/mail?state=DEAD").page
    [link] = [a.attributes["href"] for a in hour.all("a") if a.text == "Last day"]
    day = moving.get(link).page

    assert "state=DEAD" in link
    assert len(day.all("figure")[0].one("tbody").all("tr")) == 48
    assert [a.text for a in day.all("a", **{"aria-current": "page"})][-2:] == ["Last day", "dead 1"]


def test_what_waits_is_counted_back_from_now(admin: Browser) -> None:
    admin.queue()
    for count in (3, 2):
        admin.put("mail", *["{}"] * count)
        admin.clock.forward(120)
    admin.take("mail", 4)
    rows = admin.get("/console/queues/mail").page.all("figure")[-1].one("tbody").all("tr")

    assert [row.all("td")[0].text for row in rows[-6:]] == ["0", "3", "3", "5", "5", "1"]


def test_a_line_has_a_gap_where_nothing_is_known() -> None:
    values = [1.0, None, 2.0, 4.0, None, 1.0]
    path = charts.line(values, 50, 20, top=4)

    assert path == "M0.0 15.0h4M20.0 10.0L30.0 0.0M46.0 15.0h4"


def test_failures_are_drawn_where_there_are_some() -> None:
    values = [0.0, 0.0, 3.0, 0.0, 0.0, None, 0.0]

    assert charts.without_rests(values) == [None, 0.0, 3.0, 0.0, None, None, None]
    assert charts.line(charts.without_rests([0.0, 0.0]), 50, 20, top=4) == ""
