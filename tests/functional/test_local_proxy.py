"""The service on one machine behind a proxy: with TLS, under another name, under a path."""

import hashlib
import http.client
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

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


class Proxy:
    """Passes requests on to a service as a proxy does, which has removed the prefix."""

    def __init__(self, service: Launched) -> None:
        self.service = service
        self.cookies: dict[str, str] = {}

    def __call__(
        self, method: str, path: str, body: str | None = None, **headers: str
    ) -> tuple[http.client.HTTPResponse, str]:
        connection = http.client.HTTPConnection(urlsplit(self.service.url).netloc, timeout=30)
        sent = {**FORWARDED, "Authorization": f"Bearer {self.service.admin_key}", **headers}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        text = answer.read().decode()
        for line in answer.headers.get_all("Set-Cookie", []):
            assert "; Path=/tasks/console" in line
            assert line.endswith("; Secure")
            name, value = line.partition(";")[0].split("=", 1)
            self.cookies[name] = value
        connection.close()
        return answer, text


@pytest.fixture
def proxy(service: Launched) -> Proxy:
    return Proxy(service)


def test_an_upload_goes_where_the_client_sees_the_service(proxy: Proxy, tmp_path: Path) -> None:
    proxy("POST", "/v1/queues", '{"name": "files"}', **JSON)
    content = "x" * 400_000
    asked = {"bytes": len(content), "sha256": hashlib.sha256(content.encode()).hexdigest()}
    _, text = proxy(
        "POST",
        "/v1/queues/files/payloads",
        json.dumps(asked),
        **JSON,
    )
    url = json.loads(text)["url"]

    assert url.startswith(f"{PUBLIC}/v1/payloads/")
    answer, text = proxy("PUT", url.removeprefix(PUBLIC), content)
    assert answer.status == 200, text


def test_every_link_and_redirect_of_the_console_is_under_the_prefix(proxy: Proxy) -> None:
    assert proxy("GET", "/")[0].headers["Location"] == "/tasks/console/"
    answer, _ = proxy("GET", "/console")
    location = answer.headers["Location"]
    assert location.startswith("/tasks/console/sign-in?")
    _, page = proxy("GET", location.removeprefix("/tasks"))
    (token,) = re.findall(r'name="token" value="([^"]+)"', page)
    form = urlencode({"key": proxy.service.admin_key, "token": token, "next": "/tasks/console"})
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    answer, _ = proxy("POST", "/console/sign-in", form, **kind)
    assert (answer.status, answer.headers["Location"]) == (303, "/tasks/console")
    for path in ("/console", "/console/workers", "/console/keys", "/console/create-queue"):
        answer, page = proxy("GET", path)
        assert answer.status == 200
        links = re.findall(r'(?:href|src|action)="([^"#]+)"', page)
        assert len(links) > 5
        assert [link for link in links if not link.startswith("/tasks/console")] == []
        style = next(link for link in links if link.endswith(".css"))
        assert proxy("GET", style.removeprefix("/tasks"))[0].status == 200


@pytest.mark.slow
def test_without_the_setting_nothing_of_it_is_believed(tmp_path: Path) -> None:
    with launched(data_dir=tmp_path) as service:
        answer, _ = Proxy(service)("GET", "/")

    assert answer.headers["Location"] == "/console/"
