"""A payload edited and enqueued as a new task: its text is kept letter by letter."""

import pytest

from headrace.domain.access import Role
from tests.console.conftest import Browser, Shown

EXACT = '{"big":12345678901234567890,"price": 1.10,"e":1E5,"u":"\\u00e9","html":"<b>&amp;"}'


def differences(browser: Browser, task: str, payload: str, **fields: str) -> Shown:
    """Edit the payload, and see what differs."""
    form = browser.get(f"/console/tasks/{task}/enqueue").page
    return browser.submit(form, f"/{task}/enqueue", payload=payload, **fields)


def again(browser: Browser, task: str, payload: str, **fields: str) -> Shown:
    """Do so, and confirm it."""
    shown = differences(browser, task, payload, **fields)
    return browser.submit(shown.page, f"/{task}/enqueue") if shown.status == 200 else shown


def shown_payload(browser: Browser, task: str) -> str:
    page = browser.get(f"/console/tasks/{task}/enqueue").page
    [text] = page.one("textarea").children
    return str(text).removeprefix("\n")


def new_task(browser: Browser, made: Shown) -> str:
    assert made.status == 303, made.text
    return made.headers["location"].rpartition("/")[2]


def test_an_untouched_payload_is_the_same_text(admin: Browser) -> None:
    admin.queue("mail")
    [old] = admin.put("mail", EXACT, tags={"service": "x"})
    made = again(admin, old, shown_payload(admin, old).replace("\n", "\r\n"))
    new = admin.task(new_task(admin, made))

    assert new.payload == EXACT
    assert (new.queue, new.tags) == ("mail", {"service": "x"})
    assert new.id != old
    assert "This is the new one." in admin.follow(made).text


@pytest.mark.parametrize(
    ("fields", "name", "says"),
    [
        ({"payload": '{"a": }'}, "payload", "is not JSON: expecting value at line 1, column 7"),
        ({"payload": "[" * 100_000}, "payload", "is nested too deeply"),
        ({"payload": f'"{"x" * 262_144}"'}, "payload", "must be at most 262144 bytes"),
        ({"tags": "a"}, "tags", "key=value"),
        ({"queue": "nowhere"}, "queue", "no queue nowhere"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field(
    admin: Browser, fields: dict[str, str], name: str, says: str
) -> None:
    admin.queue("mail")
    [old] = admin.put("mail", EXACT)
    refused = again(admin, old, **{"payload": EXACT, **fields})

    assert refused.status in (400, 404)
    assert says in refused.page.one("p", id=f"e-{name}").text
    assert admin.count("mail") == 1


def test_who_may_not_see_or_enqueue_is_refused(admin: Browser) -> None:
    admin.queue("mail")
    [old] = admin.put("mail", '"secret"')
    viewer = admin.as_role(Role.VIEWER)

    assert "enqueue as new" not in viewer.get(f"/console/tasks/{old}").text
    assert viewer.get(f"/console/tasks/{old}/enqueue").status == 403
    assert admin.as_role(Role.ADMIN, "sms").get(f"/console/tasks/{old}/enqueue").status == 403
    only_mail = admin.as_role(Role.OPERATOR, "mail")
    admin.queue("sms")
    assert again(only_mail, old, "1", queue="sms").status == 403
    assert again(admin, old, "1", token="forged").status == 403
    assert admin.as_role(Role.PRODUCER).get(f"/console/tasks/{old}/enqueue").status == 200


def test_what_changes_is_shown_before_anything_is_enqueued(admin: Browser) -> None:
    admin.queue("mail")
    admin.queue("sms")
    [old] = admin.put("mail", EXACT, tags={"service": "x"})
    typed = shown_payload(admin, old).replace("1.10", "1.1")
    shown = differences(admin, old, typed, queue="sms", tags="a=b", delay="2m")

    assert admin.count("sms") == 0
    assert [one.text for one in shown.page.all("ol")[-1].all("del")] == ['"price": 1.10,']
    assert [one.text for one in shown.page.all("ol")[-1].all("ins")] == ['"price": 1.1,']
    rows = [[cell.text for cell in row.all("td")] for row in shown.page.all("tr")][1:]
    assert rows == [["mail", "sms"], ["service=x", "a=b"], ["nothing", "2m"]]
    made = admin.submit(shown.page, f"/{old}/enqueue")
    assert admin.task(new_task(admin, made)).payload == typed
    assert admin.count("sms") == 1
