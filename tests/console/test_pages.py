"""What each page shows, what each form does, and to whom.

Long, because it is a list of promises, a test for each.
"""

import re
from collections import Counter
from itertools import combinations
from typing import Any
from urllib.parse import parse_qs

import pytest

from headrace.domain.access import Role
from headrace.domain.errors import Unavailable
from tests.console.conftest import Browser, Element, Shown, query_of

NAMES = re.compile(r"\b(queues|tasks|batches|keys|schedules|actions)/[^/]+")
EVIL = '{"x": "<script>alert(1)</script><b onclick=\\"go()\\">&amp;", "big": 12345678901234567890}'


def links_of(shown: Shown) -> set[str]:
    return {link.attributes["href"] for link in shown.page.all("a") if link.attributes["href"]}


def crawl(browser: Browser, start: str = "/console", *, of_a_pair: int = 1) -> dict[str, Shown]:
    """Visit every page that links lead to, from *start* on; of those with a query each pair.

    Filters lead to filters: each by itself, and any two of them on one page, are looked at
    *of_a_pair* times; all their combinations, on each queue, would be hundreds of pages.
    """
    seen: dict[str, Shown] = {}
    pairs: Counter[tuple[str, ...]] = Counter()
    waiting = [start]
    while waiting:
        url = waiting.pop()
        if url in seen or url.startswith("#"):
            continue
        path, _, query = url.partition("?")
        if query:
            page = NAMES.sub(r"\1/*", path)
            names = sorted(parse_qs(query, keep_blank_values=True))
            alone: list[tuple[str, ...]] = [tuple(names)]
            here = [(page, *two) for two in [*combinations(names, 2)] or alone]
            if all(pairs[two] >= of_a_pair for two in here):
                continue
            pairs.update(here)
        seen[url] = browser.get(url)
        waiting += sorted(links_of(seen[url]))
    return seen


@pytest.mark.slow
def test_every_page_leads_somewhere_runs_nothing_of_its_own_and_names_its_fields(
    filled: Browser,
) -> None:
    filled.stage, filled.own_domain = "/tools/queue", True
    pages = crawl(filled, "/tools/queue/console", of_a_pair=2)

    assert {url: shown.status for url, shown in pages.items() if shown.status != 200} == {}
    assert {url for url in pages if not url.startswith("/tools/queue/console")} == set()
    assert len(pages) > 40
    for url, shown in pages.items():
        assert_well_made(url, shown)


def assert_well_made(url: str, shown: Shown) -> None:
    assert inline(shown) == [], url
    assert nameless(shown) == [], url


def inline(shown: Shown) -> list[Element]:
    """The elements with a script or a style in the page itself."""
    return [
        one
        for one in shown.page.walk()
        if one.tag == "style"
        or (one.tag == "script" and not one.attributes["src"])
        or "style" in one.attributes
        or any(name.startswith("on") for name in one.attributes)
    ]


def nameless(shown: Shown) -> list[Element]:
    """Return the fields without a label, and whatever has the id of another."""
    page = shown.page
    labels = {label.attributes.get("for") for label in page.all("label")}
    fields = [one for tag in ("input", "select", "textarea") for one in page.all(tag)]
    ids = Counter(one.attributes["id"] for one in page.walk() if "id" in one.attributes)
    return [
        one
        for one in fields
        if one.attributes.get("type") != "hidden"
        and "aria-label" not in one.attributes
        and one.attributes.get("id") not in labels
        and "data-live-switch" not in one.attributes
    ] + [one for one in page.walk() if ids[one.attributes.get("id", "")] > 1]


@pytest.mark.parametrize(
    "role",
    [
        pytest.param(role, marks=[] if role is Role.VIEWER else [pytest.mark.slow])
        for role in Role
        if role is not Role.ADMIN
    ],
)
def test_no_role_is_shown_a_link_or_form_that_it_may_not_follow(admin: Browser, role: Role) -> None:
    admin.queue("mail")
    admin.kill("mail")
    admin.put("mail", tags={"service": "smartcity"})
    browser = admin.as_role(role)
    pages = crawl(browser)

    assert {url: shown.status for url, shown in pages.items() if shown.status != 200} == {}
    for url, shown in pages.items():
        assert_well_made(url, shown)
        for form in shown.page.all("form", method="post"):
            if role not in (Role.OPERATOR, Role.ADMIN):
                assert form.attributes["action"].endswith("/sign-out")


def test_queues_are_told_at_a_glance(filled: Browser) -> None:
    shown = filled.get("/console")
    [row] = [row for row in shown.page.all("tr") if row.text.startswith("mail")]

    cells = [(cell.attributes["data-label"], cell.text) for cell in row.all("td")]
    states = ("scheduled", "ready", "inflight", "succeeded", "dead")
    assert cells[:5] == list(zip(states, "10211", strict=True))


def test_an_empty_console_names_the_command_that_fills_it(admin: Browser) -> None:
    assert "headrace queue create mail" in admin.get("/console").text


def test_a_queue_is_created_from_its_form(admin: Browser) -> None:
    form = admin.get("/console/create-queue").page
    made = admin.submit(form, "/create-queue", name="mail", lease_seconds="45", max_retries="2")

    assert "Queue mail created." in admin.follow(made).text
    settings = admin.settings("mail")
    assert settings.keepalive_timeout_in_seconds == 45
    assert settings.retry_strategy.max_retries == 2
    assert settings.history_retention_in_seconds == 86_400


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("name", "no spaces", "must be 1 to 128 ASCII letters"),
        ("name", "taken", "exists"),
        ("description", "x" * 1025, "must be at most 1024 bytes"),
    ],
)
def test_a_wrong_field_is_named_and_what_was_typed_stays(
    admin: Browser, name: str, value: str, says: str
) -> None:
    admin.queue("taken")
    form = admin.get("/console/create-queue").page
    refused = admin.submit(form, "/create-queue", **{"name": "mail", name: value})

    field = refused.page.one("input", name=name)
    assert refused.status == 400
    assert field.attributes["value"] == value
    assert field.attributes["aria-invalid"] == "true"
    assert says in refused.page.one("p", id=field.attributes["aria-describedby"]).text


@pytest.mark.parametrize(
    "tags",
    [
        {"to": "Smith, John"},
        {"a,b": 'say "hi"', "x": " y "},
    ],
)
def test_a_tag_leads_to_the_tasks_that_have_it(admin: Browser, tags: dict[str, str]) -> None:
    admin.queue("mail")
    [meant] = admin.put("mail", "{}", tags=tags)
    admin.put("mail", "{}", tags={"to": "Smith"})

    links = admin.get(f"/console/tasks/{meant}").page.all("a", class_="tag")

    assert len(links) == len(tags)
    for link in links:
        [row] = rows(admin.get(link.attributes["href"]))
        assert row.one("code").text[-6:] == meant[-6:]


def test_tabs_and_pages_keep_the_filter(filled: Browser) -> None:
    filled.put("mail", *["{}"] * 30)
    filled.clock.forward(1)
    shown = filled.get("/console/queues/mail?state=READY&q=attempts:0&limit=25")
    [following] = [link for link in shown.page.all("a") if link.text == "Next page"]
    second = filled.get(following.attributes["href"])

    confirm = query_of(following.attributes["href"])
    assert {name: confirm[name] for name in ("state", "q", "limit")} == {
        "state": "READY",
        "q": "attempts:0",
        "limit": "25",
    }
    first_ids = {row.one("code").text for row in rows(shown)}
    assert len(first_ids) == 25
    assert first_ids.isdisjoint({row.one("code").text for row in rows(second)})


def test_markup_in_payloads_and_errors_is_text(filled: Browser) -> None:
    task = filled.kill("mail", EVIL, "<script>alert(2)</script>")
    shown = filled.get(f"/console/tasks/{task}")

    assert all("src" in each.attributes for each in shown.page.all("script"))
    copy = shown.page.one("button", **{"aria-label": "Copy the payload exactly as it was sent"})
    assert copy.attributes["data-copy"] == EVIL
    assert "<script>alert(2)</script>" in shown.text
    assert "<script>alert(2)" not in shown.body
    assert "<script>alert(2)" not in filled.get("/console/queues/mail?state=DEAD").body


def test_errors_say_what_happened_and_the_request_id(filled: Browser) -> None:
    missing = filled.get("/console/queues/nothing")
    elsewhere = filled.get("/console/no/such/page")

    assert (missing.status, elsewhere.status) == (404, 404)
    assert "There is no queue nothing." in missing.text
    assert "b1946ac9-2d9e-4c38-8a5e-5a5f4b6a1b1a" in missing.text


def test_a_fault_shows_nothing_of_itself(filled: Browser, caplog: pytest.LogCaptureFixture) -> None:
    filled.use.stats = None  # type: ignore[assignment]  # something breaks
    shown = filled.get("/console")

    assert shown.status == 500
    assert "AttributeError" not in shown.body
    assert "AttributeError" in caplog.text


def test_while_the_table_is_away_pages_and_forms_are_a_503(
    filled: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = filled.get("/console/queues/mail").page

    def away(*_: Any, **__: Any) -> None:
        raise Unavailable("the table does not answer")

    with monkeypatch.context() as patch:
        for method in ("record", "records", "put_record"):
            patch.setattr(filled.stream, method, away, raising=False)
        for shown in (filled.get("/console/queues/mail"), filled.submit(page, "/mail/pause")):
            assert shown.status == 503
            assert int(shown.headers["retry-after"]) >= 1
            assert "Traceback" not in shown.body
    assert not filled.use.queues.get("mail").is_paused(filled.clock())


def rows(shown: Shown) -> list[Element]:
    """Return the rows of the list that the page is about."""
    (table,) = [
        each for name in ("tasks", "queues") for each in shown.page.all("table", class_=name)
    ]
    return table.one("tbody").all("tr")


def test_a_refresh_gets_304_until_the_page_changes(admin: Browser) -> None:
    url = f"/console/queues/{admin.queue()}"
    admin.put("mail")
    admin.clock.forward(70)  # the charts and the age of the task move on with each minute
    first = admin.get(url)
    admin.clock.forward(2)
    tag = {"X-Refresh": "1", "If-None-Match": first.headers["etag"]}
    same = admin.get(url, **tag)
    assert (same.status, same.body) == (304, "")

    [task] = admin.put("mail", delay_in_seconds=60)
    changed = admin.get(url, **tag)
    assert changed.status == 200
    assert task in changed.body

    admin.put("mail", *["{}"] * 50, delay_in_seconds=60)  # the cursor of the next page is encrypted
    full = admin.get(url)
    assert full.page.all("a", rel="next")
    assert admin.get(url, **{"If-None-Match": full.headers["etag"]}).status == 304

    task_page = admin.get(f"/console/tasks/{task}")
    admin.clock.forward(2)
    tag = {"X-Refresh": "1", "If-None-Match": task_page.headers["etag"]}
    assert admin.get(f"/console/tasks/{task}", **tag).status == 304


def test_a_refresh_without_a_session_is_refused_and_leads_nowhere(admin: Browser) -> None:
    assert admin.another().get("/console", **{"X-Refresh": "1"}).status == 401
