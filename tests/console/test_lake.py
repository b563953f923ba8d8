"""What the console shows of the lake: charts of weeks ago, and the last proof."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.domain.access import Role
from headrace.domain.transitions import Event, Happening
from headrace.history.proof import LATEST
from headrace.history.series import SPAN, Span, content_of, file_of, minute_of, put_together
from headrace.history.tally import Activity
from headrace.runtime.wiring import build
from headrace.store.lake import FolderLake
from tests.console.conftest import Browser, Element

NOTHING = "\u2013"


@pytest.fixture
def lake(tmp_path: Path) -> FolderLake:
    return FolderLake(tmp_path)


@pytest.fixture
def admin(browse: Browser, lake: FolderLake) -> Browser:
    """Give an admin a console over a lake; queue ``mail`` is there."""
    assert browse.stream is not None
    use = build(browse.use.settings, browse.stream.store, now=browse.clock, lake=lake)
    browser = replace(browse, use=use).sign_in()
    browser.queue()
    return browser


# ------------------------------------------------------------------------------------- the charts


def rows(page: Element, chart: int = 0) -> list[list[str]]:
    """Return the numbers below a chart: events, wait, run or what waits."""
    found = page.all("figure", class_="chart")[chart].one("tbody").all("tr")
    return [[cell.text for cell in (*row.all("th"), *row.all("td"))] for row in found]


def test_a_month_ago_is_drawn_from_the_lake_with_gaps_where_nothing_is_known(
    admin: Browser, lake: FolderLake
) -> None:
    today = admin.clock().date()
    day = today - timedelta(days=20)
    busy = Activity()
    for micros in (1_000_000, 2_000_000):
        busy.add(Happening(Event.STARTED, "mail", 0, micros))
    content = put_together([("mail", content_of({minute_of(day) + 13 * 60: busy}))])
    lake.put(file_of("mail", day), content)
    lake.put(SPAN, Span(day, day + timedelta(days=2)).text())

    page = admin.get("/console/queues/mail?span=month").page

    by_time = {time: numbers for time, *numbers in rows(page)}
    assert by_time["01 Nov 12:00"] == ["0", "2", "0", "0"]
    assert by_time["02 Nov 12:00"] == ["0", "0", "0", "0"]
    assert by_time["03 Nov 00:00"] == by_time["31 Oct 12:00"] == [NOTHING] * 4
    waits = dict(rows(page, chart=1)[i][:2] for i in range(60))
    assert waits["01 Nov 12:00"] in {"1 s", "1.0 s"}
    waiting = dict(rows(page, chart=3)[i][:2] for i in range(60))
    assert (waiting["21 Nov 00:00"], waiting["01 Nov 12:00"]) == ("0", NOTHING)
    assert "headrace lake rollup" in page.text
    assert "headrace lake rollup" not in admin.get("/console/queues/mail").text


# -------------------------------------------------------------------------------------- the proof


def report(**changed: Any) -> Mapping[str, Any]:
    at = "2026-11-20T23:59:58.000000Z"
    return {
        "holds": True,
        "made_at": "2026-11-21T07:00:00.000000Z",
        "since": None,
        "live": True,
        "first": "2026-11-01T00:00:00.000000Z",
        "last": at,
        "tasks": 12_345,
        "changes": 67_890,
        "violations": {},
        "examples": {},
        **changed,
    }


def finding(task: str, **changed: Any) -> Mapping[str, Any]:
    return {
        "task_id": task,
        "created_at": "2026-11-20T08:00:00.000000Z",
        "version": 5,
        "queue": "mail",
        "move": "succeed",
        "at": "2026-11-20T08:00:05.000000Z",
        "detail": "from mail/INFLIGHT to mail/SUCCEEDED",
        **changed,
    }


def proved(lake: FolderLake, body: Mapping[str, Any]) -> None:
    lake.put(LATEST, json.dumps(body).encode())


def test_a_proof_that_holds_says_when_and_of_what(admin: Browser, lake: FolderLake) -> None:
    proved(lake, report())

    text = admin.get("/console/proof").text

    assert "No findings" in text
    for fact in ("Made 1 h ago", "Tasks 12 345", "Changes 67 890", "Lost tasks checked"):
        assert fact in text
    proved(lake, report(first=None, last=None, since="2026-11-21", made_at=None))
    text = admin.get("/console/proof").text
    assert "No changes were recorded." in text
    assert "changes since 2026-11-21" in text
    assert "Proof" in [a.text for a in admin.get("/console").page.one("footer").all("a")]


def test_findings_are_listed_by_kind_with_links_to_their_tasks(
    admin: Browser, lake: FolderLake
) -> None:
    task = admin.kill("mail")
    found = {
        "double_lease": [finding(task), finding("t2")],
        "news": [finding("t3", detail="<b>", queue="")],
    }
    proved(lake, report(holds=False, violations={"double_lease": 41, "news": 1}, examples=found))

    page = admin.as_role(Role.VIEWER).get("/console/proof").page

    assert "42 changes that the lifecycle does not allow." in page.text
    assert [h.text for h in page.all("h2")] == ["Double lease 41", "News 1"]
    assert "delivered while another delivery held it. The first 2 of them:" in page.text
    assert [len(body.all("tr")) for body in page.all("tbody")] == [2, 1]
    [link] = [a for a in page.all("a") if a.attributes["href"].endswith(task)]
    assert admin.get(link.attributes["href"]).status == 200


def test_a_key_for_some_queues_is_not_shown_what_is_of_all(
    admin: Browser, lake: FolderLake
) -> None:
    proved(lake, report())
    some = admin.as_role(Role.OPERATOR, "mail")

    assert some.get("/console/proof").status == 403
    assert "Proof" not in [a.text for a in some.get("/console").page.all("a")]


@pytest.mark.parametrize(
    "broken", [b"{", b"[]", b"{}", json.dumps({**report(), "first": "yesterday"}).encode()]
)
def test_a_report_that_cannot_be_read_is_named(
    admin: Browser, lake: FolderLake, broken: bytes
) -> None:
    lake.put(LATEST, broken)

    shown = admin.get("/console/proof")

    assert shown.status == 503
    assert f"{LATEST} cannot be read" in shown.text
