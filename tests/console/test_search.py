"""The search boxes: one language on lists and over all queues, ids by how they begin."""

import pytest

from headrace.domain.access import Role
from tests.console.conftest import Browser, Shown, query_of


def ids_of(shown: Shown) -> set[str]:
    tables = shown.page.all("table", class_="tasks")
    links = [link.attributes["href"] for table in tables for link in table.all("a")]
    paths = {link.partition("?")[0] for link in links}
    return {path.rpartition("/")[2] for path in paths if "/tasks/" in path}


@pytest.fixture
def mail(admin: Browser) -> Browser:
    admin.queue("mail")
    admin.queue("sms")
    return admin


def test_the_box_shows_the_whole_query_with_the_state_of_the_tab(mail: Browser) -> None:
    mail.put("mail", tags={"tenant": "acme, Ltd"})
    typed = 'state:ready tag:tenant="acme, Ltd" attempts:0'

    rest = typed.removeprefix("state:ready ")
    for asked in (f"q={typed}", f"state=READY&q={rest}"):
        shown = mail.get(f"/console/queues/mail?{asked.replace(' ', '+')}")
        assert shown.page.one("input", id="query").attributes["value"] == typed
        assert len(ids_of(shown)) == 1


def test_each_term_is_taken_out_by_its_link(mail: Browser) -> None:
    mail.put("mail", tags={"a": "1"})
    shown = mail.get("/console/queues/mail?state=READY&q=tag:a%3D1+attempts:0")

    chips = shown.page.one("p", class_="terms").all("a")

    rest = [query_of(chip.attributes["href"]) for chip in chips]
    assert rest == [
        {"state": "READY", "q": "attempts:0"},
        {"state": "READY", "q": "tag:a=1"},
    ]


def test_a_wrong_query_says_what_and_where_and_lists_nothing(mail: Browser) -> None:
    mail.put("mail")
    shown = mail.get("/console/queues/mail?q=tag:a%3D1+staet:dead")

    assert shown.status == 400
    assert "at character 9: staet is no key" in shown.text
    assert shown.page.one("input", id="query").attributes["value"] == "tag:a=1 staet:dead"
    assert ids_of(shown) == set()


def test_who_may_not_see_payloads_may_not_ask_for_them(mail: Browser) -> None:
    mail.put("mail", '{"order": 77}')
    viewer = mail.as_role(Role.VIEWER)

    for path in ("/console/queues/mail", "/console/search"):
        shown = viewer.get(f"{path}?q=payload.order:77")
        assert shown.status == 400
        assert "payloads are not shown to this key" in shown.text
        assert ids_of(shown) == set()


@pytest.mark.parametrize("length", [16, 29])
def test_how_an_id_begins_finds_it_in_its_queue_and_in_all(mail: Browser, length: int) -> None:
    mail.put("mail")
    mail.clock.forward(300)
    [meant] = mail.put("sms")
    mail.clock.forward(300)
    mail.put("sms")
    prefix = meant[:length]

    shown = mail.get(f"/console/search?q={prefix}")
    assert ids_of(shown) == {meant}, shown.headers.get("location")
    assert ids_of(mail.get(f"/console/queues/sms?q={prefix}")) == {meant}
    assert ids_of(mail.get(f"/console/queues/mail?q={prefix}")) == set()


def test_ids_of_other_keys_queues_are_not_found(mail: Browser) -> None:
    [secret] = mail.put("sms")
    only_mail = mail.as_role(Role.VIEWER, "mail")

    assert ids_of(only_mail.get(f"/console/search?q={secret[:20]}")) == set()


def test_the_search_of_the_bar_names_the_queues_that_have_no_index(mail: Browser) -> None:
    shown = mail.get("/console/search?q=tag:tenant%3Dacme")

    left = shown.page.one("section", **{"aria-labelledby": "left"}).all("a")
    assert [(link.text, query_of(link.attributes["href"])) for link in left] == [
        ("mail", {"q": "tag:tenant=acme"}),
        ("sms", {"q": "tag:tenant=acme"}),
    ]
