"""The charts of a queue: which time, compared with which, what is marked, and what a step says."""

from datetime import timedelta

from console.chalicelib.charts import ChartLine, chart, usual_highest
from headrace.domain.access import Role
from headrace.domain.worker import WorkerHeartbeat
from tests.console.conftest import Browser, Element, query_of


def href(page: Element, text: str) -> str:
    return str(next(a for a in page.all("a") if a.text == text).attributes["href"])


def waiting(page: Element) -> list[str]:
    figure = next(f for f in page.all("figure") if f.one("strong").text == "Waiting")
    return [row.one("td").text for row in figure.one("tbody").all("tr")]


def test_links_zoom_in_and_out_and_the_address_says_from_and_to(admin: Browser) -> None:
    admin.queue()
    page = admin.get("/console/queues/mail?state=DEAD").page

    closer = href(page, "Zoom in")
    assert query_of(closer) == {
        "state": "DEAD",
        "from": "2026-11-21T07:30",
        "to": "2026-11-21T08:00",
    }
    shown = admin.get(closer).page
    assert (
        shown.one("section", class_="charts")
        .attributes["data-since"]
        .startswith("2026-11-21T07:30")
    )
    assert len(waiting(shown)) == 30
    wider = query_of(href(page, "Zoom out"))
    assert (wider["from"], wider["to"]) == ("2026-11-21T06:00", "2026-11-21T08:00")
    tab = query_of(next(a.attributes["href"] for a in shown.all("a") if a.text.startswith("All")))
    assert tab["from"] == "2026-11-21T07:30"


def test_yesterday_is_one_click_away(admin: Browser) -> None:
    admin.queue()
    admin.put("mail", *["{}"] * 5)
    admin.get("/console")
    admin.clock.forward(timedelta(days=1, minutes=5).total_seconds())
    admin.sign_in()
    page = admin.get("/console/queues/mail").page
    assert page.all("path", class_="ghost") == []

    compared = admin.get(href(page, "yesterday"))

    assert "The faint lines are of a day before." in compared.text
    events = compared.page.all("figure")[0]
    assert events.all("path", class_="ghost")
    table = events.one("table")
    heads = [one.text for one in table.one("thead").all("th")]
    column = heads.index("enqueued, a day before") - 1
    assert "5" in [row.all("td")[column].text for row in table.one("tbody").all("tr")]
    assert "compare" not in query_of(href(compared.page, "nothing"))


def test_pauses_edits_and_deploys_are_marked(admin: Browser) -> None:
    admin.queue()
    admin.clock.forward(300)
    admin.use.workers.alive(
        WorkerHeartbeat("ada:1", ("mail",), admin.clock(), 8, version="2026.11.21-4")
    )
    admin.submit(admin.get("/console/queues/mail").page, "/mail/pause", resume_in="")
    admin.clock.forward(30)
    admin.use.workers.alive(
        WorkerHeartbeat("ada:1", ("mail",), admin.clock() - timedelta(seconds=30), 8,
                        version="2026.11.21-4"),
    )  # fmt: skip

    shown = admin.get("/console/queues/mail").page

    said = [one.text for one in shown.one("ul", class_="marks").all("li")]
    assert said[0].startswith("paused by ")
    assert said[1].startswith("workers of version 2026.11.21-4")
    assert len(shown.all("figure")[0].all("path", class_="mark")) == 2
    viewer = admin.as_role(Role.VIEWER).get("/console/queues/mail").page
    assert "paused by" not in " ".join(one.text for one in viewer.all("ul", class_="marks"))


def test_the_axis_has_round_times_in_utc(admin: Browser) -> None:
    admin.queue()
    admin.clock.forward(7 * 60)

    def ticks(query: str) -> list[str]:
        figure = admin.get(f"/console/queues/mail{query}").page.all("figure")[0]
        assert figure.one("span", class_="utc").text == "UTC"
        return [one.text for one in figure.one("svg", class_="times").all("text")]

    assert ticks("") == ["07:15", "07:30", "07:45", "08:00"]
    assert ticks("?span=day") == ["12:00", "18:00", "21 Nov", "06:00"]
    assert ticks("?span=week") == ["15 Nov", "17 Nov", "19 Nov", "21 Nov"]


def test_one_spike_leaves_the_box_and_does_not_flatten_the_rest() -> None:
    values = [5.0] * 59 + [900.0]
    drawn = chart("Events", [ChartLine("enqueued", values)], times=["00:00"] * 60)

    assert drawn.heights[0].text == "10"
    assert (drawn.peak, drawn.peaks) == ("peak 900", (600.0,))
    assert usual_highest([5.0, 900.0]) == 900.0, "of few values none is usual"
    assert usual_highest([5.0, 20.0] * 30) == 20.0


def test_ready_and_scheduled_tasks_are_drawn_apart(admin: Browser) -> None:
    admin.queue()
    admin.put("mail", *["{}"] * 4)
    admin.put("mail", *["{}"] * 3, delay_in_seconds=3600)
    admin.clock.forward(300)
    admin.take("mail", 2)  # they were ready for five minutes
    admin.clock.forward(60)
    admin.record()

    figure = next(f for f in admin.get("/console/queues/mail").page.all("figure")
                  if f.one("strong").text == "Waiting")  # fmt: skip
    rows = [[cell.text for cell in row.all("td")] for row in figure.one("tbody").all("tr")]
    assert [one.text for one in figure.one("thead").all("th")] == ["UTC", "ready", "scheduled"]
    assert rows[-1] == ["2", "3"]
    assert rows[-3] == ["4", "3"]


def test_a_queue_without_scheduled_tasks_has_one_line_of_waiting_tasks(admin: Browser) -> None:
    admin.queue()
    admin.put("mail", *["{}"] * 4)
    admin.clock.forward(300)
    admin.record()

    charts = admin.get("/console/queues/mail").page.all("figure")
    [figure] = [each for each in charts if each.one("strong").text == "Waiting"]
    assert [one.text for one in figure.one("thead").all("th")] == ["UTC", "waiting"]
    assert figure.one("tbody").all("tr")[-3].one("td").text == "4"
