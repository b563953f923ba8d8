"""One search box on every list: its keys, its mistakes, and what sorts."""

import pytest

from headrace.domain.access import Role
from headrace.domain.schedule import ScheduleSettings
from headrace.domain.worker import WorkerHeartbeat
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.ops.search.list_queries import LANGUAGES
from tests.console.conftest import Browser, Element, Shown
from tests.console.test_home import GUIDE

PATHS = {name: f"/console/{name}" for name in ("workers", "schedules", "workflows", "activity")}


@pytest.fixture
def full(admin: Browser) -> Browser:
    """Give an admin a console with two workers, two batches and a schedule."""
    admin.queue("mail")
    for name in ("ada:1", "bob:2"):
        admin.use.workers.alive(WorkerHeartbeat(name, ("mail",), admin.clock()))
        admin.clock.forward(80 if name == "ada:1" else 1)
    settings = ScheduleSettings(every_seconds=3600, payload='{"task": "shop.digest"}')
    admin.use.schedules.put("mail", "digest", settings)
    for name in ("night", "noon"):
        admin.use.task_batches.create({}, batch_id=name, total=0 if name == "night" else None)
    admin.use.keys.create(BOOTSTRAP, "desk", Role.VIEWER, ("*",))
    return admin


def rows(shown: Shown) -> list[Element]:
    """The rows of the list, without those of tables in its cells."""
    inner = (row for body in shown.page.all("tbody")[:1] for row in body.children)
    return [row for row in inner if isinstance(row, Element)]


def heads(shown: Shown) -> dict[str, Element]:
    return {one.text.rstrip(" ▲▼"): one for one in shown.page.all("thead")[0].all("th")}


def search(browser: Browser, name: str, text: str) -> Shown:
    """Send the search box of a list."""
    page = browser.get(PATHS[name]).page
    [form] = [one for one in page.all("form", role="search") if one.all("input", id="query")]
    assert form.attributes["action"] == PATHS[name]
    return browser.get(f"{PATHS[name]}?q={text.replace(':', '%3A').replace(' ', '+')}")


def test_a_mistake_is_named_with_its_place_and_what_was_typed_stays(full: Browser) -> None:
    shown = search(full, "workers", "x quue:mail")

    assert shown.status == 400
    assert "at character 3: quue is no key: use one of " in shown.text
    assert "Nothing was searched" in shown.text
    box = shown.page.one("input", id="query").attributes
    assert (box["value"], box["aria-invalid"]) == ("x quue:mail", "true")
    assert rows(shown) == []


def test_the_guide_names_the_keys_of_each_list() -> None:
    for name, language in LANGUAGES.items():
        keys = " ".join(f"`{key}:`" for key in language.keys)
        assert f"\n| {name} | {keys} |\n" in GUIDE.read_text(), name


def test_what_payloads_call_is_not_told_to_those_who_may_not_see_them(full: Browser) -> None:
    viewer = full.as_role(Role.VIEWER)

    assert "task:shop.digest" in full.get(PATHS["schedules"]).body
    assert "task:" not in viewer.get(PATHS["schedules"]).body
    refused = search(viewer, "schedules", "task:shop.digest")
    assert refused.status == 400
    assert "those are not shown to this key" in refused.text


@pytest.mark.parametrize(
    ("name", "head", "first"),
    [
        ("workers", "Last seen", "bob:2"),
        ("workflows", "Ended", "night"),
        ("activity", "What", "Created key"),
    ],
)
def test_a_head_sorts_and_turns_the_order_round(
    full: Browser, name: str, head: str, first: str
) -> None:
    shown = full.get(PATHS[name])
    sorted_ = full.get(heads(shown)[head].one("a").attributes["href"])
    turned = full.get(heads(sorted_)[head].one("a").attributes["href"])

    assert first in rows(sorted_)[0].text
    assert first in rows(turned)[-1].text
    orders = {one.attributes.get("aria-sort") for one in heads(turned).values()}
    assert len(orders - {None}) == 1
    assert "sort=" in shown.body
