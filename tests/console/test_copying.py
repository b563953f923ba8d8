"""A payload edited and enqueued as a new task: its text is kept letter by letter."""

import pytest

from headrace.domain.access import Role
from headrace.domain.task import Status
from tests.console.conftest import Browser, Shown

EXACT = '{"big":12345678901234567890,"price": 1.10,"e":1E5,"u":"\\u00e9","html":"<b>&amp;"}'


def again(browser: Browser, task: str, payload: str, **fields: str) -> Shown:
    form = browser.get(f"/console/tasks/{task}/enqueue").page
    return browser.submit(form, f"/{task}/enqueue", payload=payload, **fields)


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
    new = admin.use.tasks.get(new_task(admin, made))

    assert new.payload == EXACT
    assert (new.queue, new.tags) == ("mail", {"service": "x"})
    assert new.id != old
    assert "This is the new one." in admin.follow(made).text


def test_an_edited_payload_is_what_was_typed(admin: Browser) -> None:
    admin.queue("mail")
    admin.queue("sms")
    [old] = admin.put("mail", EXACT)
    typed = ' {"n": 98765432109876543210987654321, "f": 1.50}\n'
    made = again(admin, old, typed, queue="sms", tags="a=b", delay="60")
    new = admin.use.tasks.get(new_task(admin, made))

    assert new.payload == typed.strip()
    assert (new.queue, new.tags, new.status(admin.clock())) == (
        "sms", {"a": "b"}, Status.SCHEDULED)  # fmt: skip
    assert admin.use.tasks.get(old).payload == EXACT


@pytest.mark.parametrize(
    ("fields", "name", "says"),
    [
        ({"payload": '{"a": }'}, "payload", "is not JSON: expecting value at line 1, column 7"),
        ({"payload": ""}, "payload", "is not JSON"),
        ({"payload": "NaN"}, "payload", "NaN is none of its numbers"),
        ({"payload": "[" * 100_000}, "payload", "is nested too deeply"),
        ({"payload": f'"{"x" * 262_144}"'}, "payload", "must be at most 262144 bytes"),
        ({"tags": "a"}, "tags", "key=value"),
        ({"delay": "-1"}, "delay", "from 0 to 31536000"),
        ({"queue": "no such/name"}, "queue", "must be the name of a queue"),
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
    assert admin.use.inspect.count("mail").count == 1


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
