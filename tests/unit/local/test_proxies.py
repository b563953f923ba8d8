"""X-Forwarded headers: believed from a trusted proxy, removed from anybody else."""

import pytest

from headrace.local import SettingInvalid
from headrace.local.environment import settings_from
from headrace.local.proxies import TrustedProxies, networks
from headrace.local.requests import LocalRequest

TRUSTED = TrustedProxies(networks("10.0.0.1, 192.168.0.0/16, ::1"))
SENT = {
    "host": "127.0.0.1:8080",
    "x-forwarded-proto": "https",
    "x-forwarded-host": "queue.example.org",
    "x-forwarded-prefix": "/tasks/",
    "x-forwarded-for": "203.0.113.9",
}


def read(source: str = "10.0.0.1", **changed: str) -> LocalRequest:
    headers = {**SENT, **{name.replace("_", "-"): value for name, value in changed.items()}}
    request = LocalRequest("GET", "/v1/health", headers=headers, source=source)
    return TRUSTED.read(request)


@pytest.mark.parametrize("source", ["10.0.0.1", "192.168.7.7", "::1", "::ffff:10.0.0.1"])
def test_a_trusted_proxy_says_where_the_client_is_and_sees_us(source: str) -> None:
    request = read(source)

    assert (request.proto, request.base, request.source) == ("https", "/tasks", "203.0.113.9")
    assert request.headers == {"host": "queue.example.org"}


@pytest.mark.parametrize("source", ["10.0.0.2", "203.0.113.1", "", "unix"])
def test_anybody_else_says_nothing(source: str) -> None:
    request = read(source)

    assert (request.proto, request.base, request.source) == ("http", "", source)
    assert request.headers == {"host": SENT["host"]}


@pytest.mark.parametrize(
    ("hops", "client"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("1.2.3.4, 203.0.113.9, 192.168.1.1", "203.0.113.9"),
        ("203.0.113.9, made up", "10.0.0.1"),
    ],
)
def test_the_client_is_the_last_hop_that_no_trusted_proxy_is(hops: str, client: str) -> None:
    assert read(x_forwarded_for=hops).source == client


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x_forwarded_proto", "javascript"),
        ("x_forwarded_host", "evil.example/path"),
        ("x_forwarded_prefix", "//evil.example"),
    ],
)
def test_what_cannot_be_one_is_left_out(name: str, value: str) -> None:
    request = read(**{name: value})

    found = {"x_forwarded_proto": request.proto, "x_forwarded_prefix": request.base}
    found["x_forwarded_host"] = request.headers["host"]
    plain = {
        "x_forwarded_proto": "http",
        "x_forwarded_prefix": "",
        "x_forwarded_host": SENT["host"],
    }
    assert found[name] == plain[name]


def test_no_proxy_is_trusted_by_default() -> None:
    assert settings_from({}).proxies == TrustedProxies()


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(SettingInvalid, match=r"HEADRACE_TRUSTED_PROXIES must be .*proxy\.lan"):
        settings_from({"HEADRACE_TRUSTED_PROXIES": "10.0.0.1,proxy.lan"})
