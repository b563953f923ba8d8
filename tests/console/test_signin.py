"""Signing in: keys, sessions, cookies, and the forms that others would like to send."""

import re
from dataclasses import replace
from urllib.parse import urlencode

import pytest

from console.app import app
from headrace.domain.access import Role
from headrace.ops.shared.audit import AuditFilter
from headrace.runtime.wiring import build
from tests.console.conftest import HOST, KEY, Browser, query_of

SESSION = "headrace_session"
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
}


def try_key(browser: Browser, key: str) -> int:
    page = browser.get("/console/sign-in").page
    return browser.submit(page, "/sign-in", key=key).status


def test_whoever_is_not_signed_in_is_sent_to_the_door_and_back(browse: Browser) -> None:
    browse.queue("mail")
    sent = browse.get("/console/queues/mail?state=DEAD")
    door = browse.follow(sent)
    entered = browse.submit(door.page, "/sign-in", key=KEY)

    assert query_of(sent.headers["location"])["next"] == "/console/queues/mail?state=DEAD"
    assert entered.headers["location"] == "/console/queues/mail?state=DEAD"
    assert browse.follow(entered).status == 200


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example",
        "//evil.example",
        "/console/../v1",
        "javascript:x",
    ],
)
def test_the_door_leads_nowhere_else(browse: Browser, elsewhere: str) -> None:
    page = browse.get("/console/sign-in").page
    entered = browse.submit(page, "/sign-in", key=KEY, next=elsewhere)

    assert entered.headers["location"] in ("/console", "/console/../v1")
    assert entered.headers["location"].startswith("/console")


def test_a_session_cookie_has_its_flags_and_no_secret(browse: Browser) -> None:
    secret = browse.key(Role.OPERATOR)
    page = browse.get("/console/sign-in").page
    cookie = browse.submit(page, "/sign-in", key=secret).cookies[SESSION]

    assert cookie["httponly"]
    assert cookie["secure"]
    assert cookie["samesite"] == "Strict"
    assert cookie["path"] == "/console"
    assert cookie["max-age"] == "28800"
    assert secret not in cookie.value
    assert secret.rsplit("_", 1)[1] not in cookie.value


@pytest.mark.parametrize(
    ("proto", "host", "secure"),
    [
        ("http", HOST, True),
        ("http", "localhost:8080", False),
        ("http", "[::1]:8080", False),
        ("http", "localhost.evil.example", True),
    ],
)
def test_only_plain_http_on_ones_own_machine_has_cookies_without_secure(
    browse: Browser, proto: str, host: str, *, secure: bool
) -> None:
    shown = browse.get("/console/sign-in", **{"X-Forwarded-Proto": proto, "Host": host})

    assert bool(shown.cookies["headrace_door"]["secure"]) is secure


def test_a_wrong_key_does_not_get_in(browse: Browser) -> None:
    page = browse.get("/console/sign-in").page
    refused = browse.submit(page, "/sign-in", key="hr_no-such-key")

    assert refused.status == 401
    assert "The key is not known." in refused.text
    assert SESSION not in browse.jar
    assert "hr_no-such-key" not in refused.body


def test_ten_wrong_keys_are_slowed_down_wherever_they_are_asked(browse: Browser) -> None:
    statuses = [try_key(browse, "wrong") for _ in range(12)]

    assert statuses == [401] * 10 + [429] * 2
    assert try_key(browse.another(), KEY) == 429, "a right key must not tell itself apart"
    other = browse.another()
    other.source = "198.51.100.1"
    assert try_key(other, KEY) == 303


def test_a_copy_of_the_cookie_is_worth_nothing_after_signing_out(admin: Browser) -> None:
    thief = admin.another()
    thief.jar[SESSION] = admin.jar[SESSION]
    assert thief.get("/console").status == 200
    token = thief.get("/console").page.all("input", name="token")[0].attributes["value"]

    admin.submit(admin.get("/console").page, "/sign-out")

    assert thief.get("/console").status == 303
    sent = thief.post("/console/create-queue", {"token": token, "name": "stolen"})
    assert (sent.status, sent.page.one("h1").text) == (401, "Sign in")
    assert not admin.use.queues.list().shown


def test_who_comes_goes_and_is_refused_is_logged_and_audited_by_key_id(
    admin: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    viewer = admin.as_role(Role.VIEWER)
    [key] = admin.api_keys()
    admin.queue("mail")
    token = viewer.get("/console").page.all("input", name="token")[0].attributes["value"]
    assert viewer.get("/console/keys").status == 403
    assert viewer.post("/console/queues/mail/pause", {"token": token}).status == 403
    assert try_key(admin.another(), f"{key.prefix}_{'0' * 40}") == 401
    viewer.submit(viewer.get("/console").page, "/sign-out")

    entries = admin.use.audit.list(AuditFilter(actor=key.id)).shown
    assert {entry.action for entry in entries} == {"sign_in", "refuse", "sign_out"}
    [refused] = [entry for entry in entries if entry.action == "refuse"]
    assert (refused.queue, refused.changed) == ("mail", 0)
    assert refused.filter == {"request": "POST /console/queues/{queue}/pause"}
    [wrong] = admin.audited("refuse_sign_in")
    assert wrong.ids == [key.id]
    lines = [line for line in caplog.messages if key.id in line]
    assert [line.split(",")[0] for line in lines] == [
        "signed in from 192.0.2.7",
        f"GET /console/keys refused to key {key.id}",
        f"POST /console/queues/{{queue}}/pause refused to key {key.id}",
        "sign-in refused from 192.0.2.7",
        "signed out from 192.0.2.7",
    ]
    shown = admin.get("/console/activity").text
    assert "nobody Was refused at sign-in" in shown
    assert "0" * 40 not in caplog.text + shown


def test_an_altered_cookie_is_no_session(admin: Browser) -> None:
    good = admin.jar[SESSION]
    forged = good[:-9] + ("A" if good[-9] != "A" else "B") + good[-8:]
    for bad in (forged, "", "x", good.replace(".", ""), "é"):
        admin.jar[SESSION] = bad
        assert admin.get("/console").status == 303


def test_no_form_is_taken_without_its_token_or_from_another_site(filled: Browser) -> None:
    token = filled.get("/console").page.all("input", name="token")[0].attributes["value"]
    cross = {"Sec-Fetch-Site": "cross-site"}
    for path, methods in app.routes.items():
        if "POST" in methods and path != "/console/sign-in":
            url = re.sub(r"\{\w+\}", "mail", path)
            assert filled.post(url, {"token": "forged"}).status == 403, path
            assert filled.post(url, {"token": token}, **cross).status == 403, path


def test_the_door_takes_only_its_own_form(browse: Browser) -> None:
    page = browse.get("/console/sign-in").page
    token = page.one("input", name="token").attributes["value"]

    assert browse.another().post("/console/sign-in", {"key": KEY, "token": token}).status == 403
    assert browse.another().post("/console/sign-in", {"key": KEY}).status == 403


def test_a_form_of_another_type_is_refused(filled: Browser) -> None:
    refused = filled.send(
        "POST", "/console/queues/mail/pause", b"{}", {"Content-Type": "application/json"}
    )

    assert refused.status == 415
    assert refused.headers["content-security-policy"]


def test_a_link_from_elsewhere_opens_itself_once_more(filled: Browser) -> None:
    """Browsers keep a strict cookie from links on other sites: a chat, a mail."""
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    bounced = filled.another().get("/console/queues/mail", **headers)

    assert bounced.status == 200
    assert len(bounced.page.all("meta", **{"http-equiv": "refresh"})) == 1
    again = filled.another().get("/console/queues/mail", **{"Sec-Fetch-Site": "same-origin"})
    assert again.status == 303


@pytest.mark.parametrize(
    "url", ["/console", "/console/sign-in", "/console/nowhere", "/console/queues/no"]
)
def test_every_page_has_the_headers(admin: Browser, url: str) -> None:
    headers = admin.get(url).headers

    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert headers["x-frame-options"] == "DENY"
    assert "max-age=" in headers["strict-transport-security"]


def test_files_are_kept_for_a_year_and_asked_for_by_their_content(browse: Browser) -> None:
    page = browse.get("/console/sign-in").page
    url = page.one("link", rel="stylesheet").attributes["href"]
    shown = browse.get(url)

    assert shown.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert shown.headers["content-type"] == "text/css; charset=utf-8"
    assert browse.get(url, **{"If-None-Match": shown.headers["etag"]}).status == 304
    assert browse.get("/console/static/console.css").status == 404


def test_a_viewer_sees_no_payload_and_no_action(filled: Browser) -> None:
    viewer = filled.as_role(Role.VIEWER)
    task = filled.kill("mail", '{"secret": "in the payload"}')
    shown = viewer.get(f"/console/tasks/{task}")

    assert "in the payload" not in shown.body
    assert "not shown to viewer keys" in shown.text
    assert "Restart" not in shown.body
    assert viewer.get(f"/console/tasks/{task}/restart").status == 403
    page = viewer.get("/console/queues/mail").page
    assert not [form for form in page.all("form") if "pause" in form.attributes["action"]]
    assert not page.all("input", name="id")
    token = page.all("input", name="token")[0].attributes["value"]
    for path in (
        "queues/mail/pause",
        "queues/mail/selected",
        f"tasks/{task}/delete",
        "create-queue",
    ):
        assert viewer.post(f"/console/{path}", {"token": token, "queue": "mail"}).status == 403


def test_a_restricted_key_sees_and_touches_only_its_queues(filled: Browser) -> None:
    browser = filled.as_role(Role.OPERATOR, "ngsi.*")
    other, own = filled.kill("mail"), filled.put("ngsi.notify", delay_in_seconds=60)[0]

    assert "mail" not in browser.get("/console").page.one("table").text
    assert browser.get("/console/queues/mail").status == 403
    assert browser.get("/console/queues/nothing").status == 403
    assert browser.get(f"/console/tasks/{other}").status == 403
    assert browser.get("/console/tasks/nothing").status == 403
    page = browser.get(f"/console/tasks/{own}/delete").page
    token = page.all("input", name="token")[0].attributes["value"]
    for queue in ("mail", "ngsi.notify"):
        fields = {"token": token, "queue": queue}
        refused = browser.post(f"/console/tasks/{other}/delete", fields)
        assert (refused.status == 403) is (queue == "mail")
    assert filled.task(other).queue == "mail"
    moved = browser.get(f"/console/tasks/{own}/move").page
    assert browser.submit(moved, "/move", to_queue="mail").status == 403


FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PLAIN = {"X-Forwarded-Proto": "http", "Host": "queue.lan:8080"}


def test_over_plain_http_the_page_says_what_signing_in_needs(browse: Browser) -> None:
    shown = browse.get("/console/sign-in", **PLAIN)

    assert "needs https" in shown.text
    assert "queue.lan:8080" in shown.text
    for way in ("TLS", "localhost", "--insecure-cookies", "--trusted-proxies"):
        assert way in shown.text
    assert not shown.page.all("form")


def test_a_form_sent_over_plain_http_is_answered_with_the_same_page(browse: Browser) -> None:
    form = {"key": KEY, "token": "made-elsewhere"}
    shown = browse.send("POST", "/console/sign-in", urlencode(form).encode(), {**PLAIN, **FORM})

    assert shown.status == 403
    assert "needs https" in shown.text
    assert "Not allowed" not in shown.text


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-Proto": "http", "Host": "localhost:8080"},
        # A proxy with TLS that the service does not trust: only over TLS is this header sent.
        {**PLAIN, "Sec-Fetch-Site": "none"},
    ],
)
def test_where_the_browser_keeps_cookies_it_asks_for_a_key(
    browse: Browser, headers: dict[str, str]
) -> None:
    browse.headers = headers

    assert browse.sign_in().get("/console").status == 200


@pytest.mark.parametrize(("proto", "secure"), [("http", ""), ("https", "secure")])
def test_a_network_that_is_trusted_may_sign_in_over_plain_http(
    browse: Browser, proto: str, secure: str
) -> None:
    settings = replace(browse.use.settings, insecure_cookies=True)
    browse.use = build(settings, browse.use.push.store, now=browse.clock)
    browse.headers = {**PLAIN, "X-Forwarded-Proto": proto}
    page = browse.get("/console/sign-in").page
    entered = browse.submit(page, "/sign-in", key=KEY)

    assert bool(entered.cookies[SESSION]["secure"]) is bool(secure)
    assert browse.follow(entered).status == 200
