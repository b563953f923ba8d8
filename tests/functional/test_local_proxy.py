"""The service on one machine behind a proxy: with TLS, under another name, under a path."""

import gzip
import hashlib
import html
import http.client
import json
import re
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest
import urllib3

from headrace import Client
from infra.launch import Launched, launched

JSON = {"Content-Type": "application/json"}
PUBLIC = "https://example.org/tasks"
FORWARDED = {
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "example.org",
    "X-Forwarded-Prefix": "/tasks",
    "X-Forwarded-For": "203.0.113.9",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    environment = {
        "HEADRACE_TRUSTED_PROXIES": "127.0.0.1",
        "HEADRACE_PAYLOAD_OFFLOAD_BYTES": "32768",
    }
    folder = tmp_path_factory.mktemp("data")
    with launched(data_dir=folder, environment=environment) as running:
        yield running


def ask(
    service: Launched, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[http.client.HTTPResponse, str]:
    """Send a request as a proxy does that has removed the prefix."""
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=30)
    key = {"Authorization": f"Bearer {service.admin_key}"}
    connection.request(method, path, body, {**FORWARDED, **key, **headers})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_an_upload_goes_where_the_client_sees_the_service(service: Launched) -> None:
    ask(service, "POST", "/v1/queues", '{"name": "files"}', **JSON)
    content = "x" * 400_000
    asked = {"bytes": len(content), "sha256": hashlib.sha256(content.encode()).hexdigest()}
    _, text = ask(service, "POST", "/v1/queues/files/payloads", json.dumps(asked), **JSON)
    url = json.loads(text)["url"]

    assert url.startswith(f"{PUBLIC}/v1/payloads/")
    answer, text = ask(service, "PUT", url.removeprefix(PUBLIC), content)
    assert answer.status == 200, text


def test_redirects_forms_and_cookies_have_the_prefix_that_the_proxy_names(
    service: Launched,
) -> None:
    assert ask(service, "GET", "/")[0].headers["Location"] == "/tasks/console/"
    answer, page = ask(service, "GET", "/console/sign-in")

    assert 'action="/tasks/console/sign-in"' in page
    (cookie,) = answer.headers.get_all("Set-Cookie", [])
    assert "; Path=/tasks/console;" in cookie
    assert cookie.endswith("; Secure")


def test_pages_are_compressed_for_clients_that_accept_it(service: Launched) -> None:
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=30)
    connection.request("GET", "/console/sign-in", headers={"Accept-Encoding": "gzip, br"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()

    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(body) < 2_000
    assert b"Sign in" in gzip.decompress(body)


@pytest.mark.slow
def test_without_the_setting_nothing_of_it_is_believed(tmp_path: Path) -> None:
    with launched(data_dir=tmp_path) as service:
        answer, _ = ask(service, "GET", "/")

    assert answer.headers["Location"] == "/console/"


# -- a prefix of the service itself: headrace run --root-path --------------------------------------

ROOT = "/tools/queue"
NAMES = re.compile(r"\b(queues|tasks|batches|keys|actions|schedules|static)/[^/?]+")


@pytest.fixture(scope="module")
def prefixed() -> Iterator[Launched]:
    with launched(environment={"HEADRACE_ROOT_PATH": f"{ROOT}/"}) as running:
        with Client(running.url, running.admin_key) as client:
            client.create_queue("mail")
            client.enqueue("mail", {"to": "ada"}, tags={"team": "post"})
            client.put_schedule("mail", "nightly", cron="0 3 * * *", payload=None)
        yield running


def test_every_page_and_form_of_the_console_is_under_the_root_path(prefixed: Launched) -> None:
    origin = prefixed.url.removesuffix(ROOT)
    cookies = CookieJar()
    browser = build_opener(HTTPCookieProcessor(cookies))

    def visit(path: str, **form: str) -> tuple[str, str]:
        """Return the path of the page that *path* leads to, and its text."""
        sent = urlencode(form).encode() if form else None
        request = Request(origin + path, sent, {"Sec-Fetch-Site": "same-origin"})  # noqa: S310
        with browser.open(request) as page:
            return page.url.removeprefix(origin), page.read().decode()

    at, page = visit(ROOT)
    assert at.startswith(f"{ROOT}/console/sign-in?next=")
    (token,) = re.findall(r'name="token" value="([^"]+)"', page)
    (target,) = re.findall(r'<form[^>]* action="([^"]+)"', page)
    first = f"{ROOT}/console/queues/mail"
    assert visit(target, key=prefixed.admin_key, token=token, next=first)[0] == first

    seen: set[tuple[str, ...]] = set()
    waiting = [first]
    while waiting:
        url = html.unescape(waiting.pop())
        path, _, query = url.partition("?")
        kind = (NAMES.sub(r"\1/*", path), *sorted(parse_qs(query)))
        if kind not in seen:
            seen.add(kind)
            _, page = visit(url)
            found = re.findall(r'(href|src|action)="([^"#]+)"', page)
            assert [url for _, url in found if not url.startswith(f"{ROOT}/console")] == [], url
            waiting += [url for name, url in found if name != "action"]
    assert len(seen) > 40
    assert {cookie.path for cookie in cookies} == {f"{ROOT}/console"}
    (token, *_) = re.findall(r'name="token" value="([^"]+)"', page)
    assert visit(f"{ROOT}/console/sign-out", token=token)[0] == f"{ROOT}/console/sign-in"


def test_a_proxy_may_remove_the_root_path_and_an_unknown_page_leads_back(
    prefixed: Launched,
) -> None:
    origin = prefixed.url.removesuffix(ROOT)
    for path, status in (("/console/sign-in", 200), ("/console/no/such/page", 404)):
        answer = urllib3.request("GET", origin + path)

        assert answer.status == status
        assert f'href="{ROOT}/console"'.encode() in answer.data


def test_the_api_and_its_documents_are_under_the_root_path(prefixed: Launched) -> None:
    document = urllib3.request("GET", f"{prefixed.url}/v1/openapi.json").json()
    assert document["servers"] == [{"url": ROOT}]
    links = re.findall(
        r'href="([^"#]+)"', urllib3.request("GET", f"{prefixed.url}/v1/docs").data.decode()
    )
    assert links
    for link in links:
        assert urlsplit(urljoin(f"{ROOT}/v1/docs", link)).path.startswith(f"{ROOT}/v1/"), link
    with Client(prefixed.url, prefixed.admin_key) as client:
        assert client.count_tasks("mail").count == 1
