"""A task as its target gets it, and what an answer, or none, is taken for."""

import json
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headrace import webhooks
from headrace.domain.push import (
    PushHosts,
    Target,
)
from headrace.domain.push_messages import (
    TargetAnswer,
    derived_secret,
)
from headrace.domain.task import Place, State, Task
from headrace.push.sending import TargetSender, function_event
from tests.unit.push.receiver import GivenAnswer, Receiver, receiving, scripted

NOW = datetime(2026, 11, 23, 17, tzinfo=UTC)
SECRET = derived_secret(b"s" * 32, "mail", 0, NOW)
TASK = Task(
    id="tsk_1",
    place=Place("mail", State.INFLIGHT, 0),
    payload='{"to": "é", "n": 1.0}',
    created_at=NOW,
    scheduled_at=NOW,
    due_at=NOW,
    enqueued_at=NOW,
    attempts=2,
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


def sender(hosts: str = "127.0.0.1", **more: Any) -> TargetSender:
    return TargetSender(PushHosts.parse(hosts), now=lambda: NOW, **more)


def sent(url: str, *, by: TargetSender | None = None, **more: Any) -> TargetAnswer:
    one = by or sender()
    try:
        return one.send(Target(url=url, **more), TASK, [SECRET])
    finally:
        one.close()


def test_a_target_gets_the_payload_byte_for_byte_and_signed(receiver: Receiver) -> None:
    receiver.answer = lambda _: GivenAnswer(201, b'{"sent": true}')
    answer = sent(receiver.url + "?a=b%20c", headers={"Authorization": "Bearer x"})
    assert answer == TargetAnswer(201, b'{"sent": true}')
    (got,) = receiver.received
    assert (got.path, got.body.decode()) == ("/hook?a=b%20c", TASK.payload)
    webhooks.verify(got.body, got.headers, SECRET, clock=NOW.timestamp)
    assert got.headers["content-type"] == "application/json"
    assert got.headers["webhook-id"] == "tsk_1"
    assert got.headers["headrace-queue"] == "mail"
    assert got.headers["headrace-attempt"] == "2"
    assert got.headers["authorization"] == "Bearer x"
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"


def test_a_redirect_is_an_answer_and_is_not_followed(receiver: Receiver) -> None:
    receiver.answer = lambda _: GivenAnswer(302, headers={"Location": receiver.url})
    assert sent(receiver.url).status == 302
    assert len(receiver.received) == 1


def test_no_proxy_is_asked(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert sent(receiver.url).status == 200


def test_no_more_than_64_kib_of_an_answer_are_read(receiver: Receiver) -> None:
    receiver.answer = lambda _: GivenAnswer(200, b"1" * 65_536)
    assert sent(receiver.url).whole
    receiver.answer = lambda _: GivenAnswer(200, b"1" * 50_000_000)
    one = sender()
    answer = one.send(Target(url=receiver.url), TASK, [SECRET])
    assert (len(answer.body), answer.whole, answer.status) == (65_536, False, 200)
    receiver.answer = lambda _: GivenAnswer(200, b"2")
    assert one.send(Target(url=receiver.url), TASK, [SECRET]).body == b"2"
    one.close()


def test_an_answer_that_trickles_in_ends_at_the_one_deadline() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    trickle = [part for _ in range(100) for part in (b"1", 0.1)]
    with scripted(head, *trickle) as port:
        started = time.monotonic()
        answer = sent(f"http://127.0.0.1:{port}/", timeout_in_seconds=1)
    assert (answer.status, answer.error) == (None, "Timeout")
    assert "within 1 s" in answer.message
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ((), "RemoteProtocolError"),
        ((b"hello\r\n\r\n",), "RemoteProtocolError"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n1",), "RemoteProtocolError"),
        ((b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 50_000,), "RemoteProtocolError"),
    ],
)
def test_what_is_no_http_is_no_answer(parts: tuple[bytes, ...], error: str) -> None:
    with scripted(*parts) as port:
        answer = sent(f"http://127.0.0.1:{port}/", timeout_in_seconds=5)
    # A receiver that closes with something unread resets the connection.
    assert (answer.status, answer.error) in ((None, error), (None, "ReadError"))
    assert answer.message


@pytest.mark.parametrize(
    ("url", "addresses", "why"),
    [
        ("https://a.example/", ["127.0.0.1"], "private"),
        ("https://a.example/", ["::ffff:10.0.0.1"], "private"),
        ("http://a.example/", ["8.8.8.8"], "https"),
        ("http://127.0.0.1:{port}/", ["8.8.8.8"], "HEADRACE_PUSH_HOSTS"),
    ],
)
def test_what_must_not_be_asked_is_refused_and_hears_nothing(
    receiver: Receiver, url: str, addresses: list[str], why: str
) -> None:
    one = sender("", resolve=lambda _host, _port: addresses)
    answer = sent(url.format(port=receiver.port), by=one)
    assert (answer.status, answer.error) == (None, "TargetRefused")
    assert why in answer.message
    assert receiver.received == []


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a key and its certificate, signed by itself, for *name*."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    today = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(pem))
    paths[1].write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


def test_over_tls_the_name_is_what_counts_and_the_address_what_was_resolved(
    tmp_path: Path,
) -> None:
    names: list[str | None] = []
    chain, key = certificate(tmp_path, "hook.example")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain, key)
    server.sni_callback = lambda _socket, name, _context: names.append(name)
    trusting = ssl.create_default_context(cafile=str(chain))
    with receiving(tls=server) as receiver:
        for host, expected in (
            ("hook.example", (200, "")),
            ("other.example", (None, "ConnectError")),
        ):
            one = sender(host, ssl_context=trusting, resolve=lambda _h, _p: ["127.0.0.1"])
            answer = sent(f"https://{host}:{receiver.port}/", by=one)
            assert (answer.status, answer.error) == expected
        assert names == ["hook.example", "other.example"]
        assert [got.headers["host"] for got in receiver.received] == [
            f"hook.example:{receiver.port}"
        ]


def test_a_function_is_called_with_the_task() -> None:
    calls: list[tuple[str, bytes, float]] = []

    def call(arn: str, event: bytes, seconds: float) -> TargetAnswer:
        calls.append((arn, event, seconds))
        return TargetAnswer(200, b"1")

    one = sender(call_function=call)
    answer = one.send(Target(function="arn:x", timeout_in_seconds=7), TASK, [SECRET])
    assert answer == TargetAnswer(200, b"1")
    assert calls == [("arn:x", function_event(TASK), 7.0)]
    assert json.loads(calls[0][1]) == {
        "id": "tsk_1",
        "queue": "mail",
        "attempt": 2,
        "payload": {"to": "é", "n": 1.0},
    }
