"""Saved views: a query by a name, beside the box of its queue, for everybody."""

from tests.console.conftest import Browser, query_of

TYPED = '/console/queues/mail?q=state:dead+tag:to%3D"a b"'
TEXT = 'state:dead tag:to="a b"'


def views(browser: Browser) -> list[tuple[str, dict[str, str]]]:
    page = browser.get("/console/queues/mail").page
    found = [link for nav in page.all("div", class_="views") for link in nav.all("a")]
    return [(link.text, query_of(link.attributes["href"])) for link in found]


def test_a_query_is_saved_by_a_name_and_removed_again(admin: Browser) -> None:
    admin.queue("mail")
    saved = admin.submit(admin.get(TYPED).page, "/mail/views", name="to a b", do="save")

    assert "The view to a b is saved." in admin.follow(saved).text
    assert views(admin) == [("to a b", {"q": TEXT})]
    (view,) = admin.use.views.of("mail")
    assert view.by == "bootstrap"

    removed = admin.submit(admin.get(TYPED).page, "/mail/views", do="remove")
    assert "The view to a b is removed." in admin.follow(removed).text
    assert views(admin) == []


def test_views_of_a_queue_are_not_another_ones(admin: Browser) -> None:
    admin.queue("mail")
    admin.queue("mail2")
    admin.use.views.save("mail2", "late", TEXT, by="ada")

    assert views(admin) == []
