"""What raw sockets may send to the local service.

Everything that two readers could take for two different things is refused, and ends the connection.
"""

from collections.abc import Iterator

import pytest

from tests.fake_handler import FakeHandler
from tests.serving import Served, assert_refused, serving, until_end

POST = b"POST /v1/x HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
# What a smuggler would have us, or somebody behind us, take for the next request.
NEXT = b"GET /v1/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def one() -> Iterator[Served]:
    with serving() as running:
        yield running


@pytest.fixture
def served(one: Served) -> Served:
    one.handler.events.clear()
    return one


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"NONSENSE\r\n\r\n", id="no request line"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", id="TLS"),
        pytest.param(b"\r\n\r\n", id="empty"),
        pytest.param(POST + b"Content-Length: -1\r\n\r\n", id="length below 0"),
        pytest.param(POST + b"Content-Length: +1\r\n\r\na", id="length with a sign"),
        pytest.param(POST + b"Content-Length: 1_0\r\n\r\n0123456789", id="length of Python"),
        pytest.param(POST + b"Content-Length: many\r\n\r\n", id="length in words"),
        pytest.param(POST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", id="long length"),
        pytest.param(POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", id="two lengths"),
        pytest.param(
            POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="CL.TE"
        ),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\nContent-Length: 47\r\n\r\n0\r\n\r\n", id="TE.CL"
        ),
        pytest.param(POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", id="TE unknown"),
        pytest.param(POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", id="TE list"),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            id="TE twice",
        ),
        pytest.param(POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", id="TE with a tab"),
        pytest.param(
            b"POST /v1/x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="TE in 1.0"
        ),
        pytest.param(POST + b"X-A: a\r\n b\r\n\r\n", id="folded"),
        pytest.param(POST + b"X-A: a\r\n\tb\r\n\r\n", id="folded by a tab"),
        pytest.param(POST + b"X-A: a\r\n \r\n\r\n", id="folded nothing"),
        pytest.param(b"GET /v1/x HTTP/1.1\r\n Host: x\r\n\r\n", id="folded first"),
        pytest.param(b"GET /v1/x HTTP/1.1\r\nHost : x\r\n\r\n", id="space before the colon"),
        pytest.param(
            POST + b"Content-Length : 1\r\n\r\na", id="space before the colon of a length"
        ),
        pytest.param(POST + b"X-A\t: a\r\n\r\n", id="tab before the colon"),
        pytest.param(POST + b": a\r\n\r\n", id="no name"),
        pytest.param(POST + b"no colon\r\n\r\n", id="no colon"),
        pytest.param(POST + b"Host: y\r\n\r\n", id="two hosts"),
        pytest.param(POST + b"host: x\r\n\r\n", id="the same host twice"),
        pytest.param(b"GET /v1/x HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(b"GET /v1/x HTTP/1.1\nHost: x\n\n", id="bare line feeds"),
        pytest.param(POST + b"X-A: a\nX-B: b\r\n\r\n", id="one bare line feed"),
        pytest.param(POST + b"X-A: a\rX-B: b\r\n\r\n", id="a carriage return"),
        pytest.param(POST + b"X-A: a\0b\r\n\r\n", id="a zero byte"),
        pytest.param(CHUNKED + b"zz\r\n", id="chunk without a size"),
        pytest.param(CHUNKED + b"0x1\r\na\r\n0\r\n\r\n", id="size of C"),
        pytest.param(CHUNKED + b"+1\r\na\r\n0\r\n\r\n", id="size with a sign"),
        pytest.param(CHUNKED + b"-1\r\na\r\n0\r\n\r\n", id="size below 0"),
        pytest.param(CHUNKED + b"f" * 21 + b"\r\n", id="size beyond all numbers"),
        pytest.param(CHUNKED + b"1\r\nab0\r\n\r\n", id="chunk that goes on"),
        pytest.param(CHUNKED + b"1;" + b"a" * 9000 + b"\r\na\r\n0\r\n\r\n", id="long chunk line"),
        pytest.param(CHUNKED + b"0" * 9000 + b"\r\n\r\n", id="long size"),
        pytest.param(CHUNKED + b"0\r\n" + b"X-A: a\r\n" * 1200 + b"\r\n", id="many trailers"),
        pytest.param(CHUNKED + b"0\r\nX-A : a\r\n\r\n", id="a trailer with a space"),
    ],
)
def test_what_could_be_read_in_two_ways_is_a_400_and_the_end(served: Served, sent: bytes) -> None:
    answer = served.raw(sent + NEXT)

    assert_refused(answer, 400, "invalid_request")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert served.handler.events == []


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (CHUNKED + b"1;", b"a" * 999),
        (CHUNKED, b"0" * 999),
        (CHUNKED + b"0\r\n", b"X-A: a\r\n" * 99),
    ],
    ids=["chunk line", "size", "trailers"],
)
def test_what_never_ends_is_refused_while_it_is_sent(
    served: Served, begun: bytes, more: bytes
) -> None:
    with served.open() as connection:
        connection.sendall(begun)
        for _ in range(20):
            connection.sendall(more)
        assert_refused(until_end(connection), 400, "invalid_request")


def test_a_body_has_so_many_chunks_and_no_more(served: Served) -> None:
    assert b"200 OK" in served.raw(
        CHUNKED.replace(b"Host", b"Connection: close\r\nHost")
        + b"1\r\na\r\n" * 10_000
        + b"0\r\n\r\n"
    )
    assert_refused(served.raw(CHUNKED + b"1\r\na\r\n" * 10_001), 400, "invalid_request")


def test_another_version_is_not_spoken(served: Served) -> None:
    answer = served.raw(b"GET /v1/x HTTP/2.0\r\nHost: x\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 505 ")


def test_requests_sent_ahead_are_answered_in_their_order(served: Served) -> None:
    posts = [POST + b"Content-Length: 1\r\n\r\n%d" % number for number in range(5)]
    last = b"GET /v1/last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = served.raw(b"".join(posts) + CHUNKED + b"2\r\nok\r\n0\r\nX-A: a\r\n\r\n" + last)

    assert answer.count(b"HTTP/1.1 200 OK") == 7
    assert [event["path"] for event in served.handler.events] == ["/v1/x"] * 6 + ["/v1/last"]


def test_a_request_may_come_in_single_bytes(served: Served) -> None:
    with served.open() as connection:
        for byte in POST + b"Connection: close\r\nContent-Length: 2\r\n\r\nok":
            connection.sendall(bytes([byte]))
        assert until_end(connection).endswith(b"\r\n\r\nfine")


def test_a_client_that_sends_no_more_still_gets_its_answer(served: Served) -> None:
    with served.open() as connection:
        connection.sendall(POST + b"Content-Length: 2\r\n\r\nok")
        connection.shutdown(1)
        assert until_end(connection).endswith(b"\r\n\r\nfine")


@pytest.mark.parametrize("sent", [b"GET /v1/x HT", POST + b"Content-Length: 9\r\n\r\nshort"])
def test_a_client_that_ends_in_the_middle_is_told(served: Served, sent: bytes) -> None:
    with served.open() as connection:
        connection.sendall(sent)
        connection.shutdown(1)
        assert_refused(until_end(connection), 400, "invalid_request")
    assert served.handler.events == []


def test_http_1_0_is_answered_and_ended(served: Served) -> None:
    assert served.raw(b"GET /v1/x HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\nfine")


def test_a_client_may_ask_before_it_sends_its_body(served: Served) -> None:
    head = POST + b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: 2\r\n\r\n"
    with served.open() as connection:
        connection.sendall(head)
        assert connection.recv(100) == b"HTTP/1.1 100 \r\n\r\n"
        connection.sendall(b"ok")
        assert until_end(connection).startswith(b"HTTP/1.1 200 OK\r\n")


def test_one_that_asks_for_too_much_is_told_before_it_sends_it(served: Served) -> None:
    head = POST + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"

    assert_refused(served.raw(head), 413, "payload_too_large")


def test_head_has_the_length_and_no_body(served: Served) -> None:
    answer = served.raw(b"HEAD /v1/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    assert b"\r\nContent-Length: 4\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_no_content_has_neither() -> None:
    with serving(FakeHandler({"statusCode": 204, "body": ""})) as served:
        answer = served.raw(b"GET /v1/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 204 No Content\r\n")
    assert b"Content-Length" not in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("headers", [{"X A": "1"}, {"X": "a\0b"}, {"X:": "1"}])
def test_an_answer_that_cannot_be_sent_is_a_500(
    headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with serving(FakeHandler({"statusCode": 200, "headers": headers})) as served:
        assert_refused(served.raw(NEXT), 500, "internal_error")
    assert "cannot be sent" in caplog.text


@pytest.mark.parametrize(
    "host",
    [
        b"a b", b"a/b", b"http://x", b"x@y", b"x:80:80", b"x:port", b"[::1", b"::1", b"x?y", b"x#y",
        b"<x>", b'"x"', b"\xff", b"a,b\\c", b"x%zz", b"[evil]", b"a" * 256,
    ],
)  # fmt: skip
def test_a_host_that_cannot_be_one_is_a_400(served: Served, host: bytes) -> None:
    answer = served.raw(b"GET /v1/x HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")

    assert_refused(answer, 400, "invalid_request")
    assert served.handler.events == []


@pytest.mark.parametrize(
    "host", [b"x", b"example.org:8080", b"10.0.0.1", b"[::1]:80", b"a_b", b"x:", b"", b"a%20b"]
)
def test_a_host_that_can_be_one_is_taken(served: Served, host: bytes) -> None:
    head = b"GET /v1/x HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"

    assert served.raw(head).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("target", [b"/v1/x", b"/nowhere", b"/", b"*"])
def test_a_trace_is_a_405_that_names_what_is_allowed(served: Served, target: bytes) -> None:
    head = (
        b"TRACE " + target + b" HTTP/1.1\r\nHost: x\r\nCookie: secret\r\nConnection: close\r\n\r\n"
    )
    answer = served.raw(head)

    assert_refused(answer, 405, "invalid_request")
    assert b"\r\nAllow: DELETE, GET, HEAD, OPTIONS, POST, PUT\r\n" in answer
    assert b"secret" not in answer


def test_a_connect_is_a_405_too(served: Served) -> None:
    head = b"CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\nConnection: close\r\n\r\n"

    assert_refused(served.raw(head), 405, "invalid_request")
