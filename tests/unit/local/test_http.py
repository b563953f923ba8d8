"""Raw requests to the local service.

A request that two readers could understand differently is refused, and ends the connection.
"""

from collections.abc import Iterator

import pytest

from tests.serving import Served, assert_refused, serving, until_end

POST = b"POST /v1/x HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Authorization: Bearer x\r\nTransfer-Encoding: chunked\r\n\r\n"
# A request that an attacker could hide behind another.
NEXT = b"GET /v1/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def one() -> Iterator[Served]:
    with serving() as running:
        yield running


@pytest.fixture
def served(one: Served) -> Served:
    one.api.requests.clear()
    return one


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"NONSENSE\r\n\r\n", id="no request line"),
        pytest.param(POST + b"Content-Length: -1\r\n\r\n", id="length below 0"),
        pytest.param(POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", id="two lengths"),
        pytest.param(
            POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="CL.TE"
        ),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\nContent-Length: 47\r\n\r\n0\r\n\r\n", id="TE.CL"
        ),
        pytest.param(POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", id="TE unknown"),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            id="TE twice",
        ),
        pytest.param(
            b"POST /v1/x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="TE in 1.0"
        ),
        pytest.param(b"GET /v1/x HTTP/1.1\r\nHost : x\r\n\r\n", id="space before the colon"),
        pytest.param(POST + b"Host: y\r\n\r\n", id="two hosts"),
        pytest.param(b"GET /v1/x HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(b"GET /v1/x HTTP/1.1\r\nHost: a/b\r\n\r\n", id="not a host"),
        pytest.param(b"GET /v1/x HTTP/1.1\r\nHost: [evil]\r\n\r\n", id="not an address"),
        pytest.param(CHUNKED + b"zz\r\n", id="chunk without a size"),
        pytest.param(CHUNKED + b"1\r\nab0\r\n\r\n", id="chunk that is too long"),
        pytest.param(CHUNKED + b"0\r\nX-A : a\r\n\r\n", id="a trailer with a space"),
    ],
)
def test_a_malformed_request_is_a_400_and_the_end(served: Served, sent: bytes) -> None:
    answer = served.raw(sent + NEXT)

    assert_refused(answer, 400, "invalid_request")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert served.api.requests == []


def test_a_malformed_request_leaves_nothing_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as served:
        served.raw(b"NONSENSE\r\n\r\n")

    assert caplog.records == []


def test_large_headers_are_a_413(served: Served) -> None:
    answer = served.raw(POST + b"X-A: " + b"a" * 40_000 + b"\r\n\r\n")

    assert_refused(answer, 413, "payload_too_large")


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (CHUNKED + b"1;", b"a" * 9999),
        (CHUNKED, b"0" * 9999),
        (CHUNKED + b"0\r\n", b"X-A: a\r\n" * 999),
    ],
    ids=["chunk line", "size", "trailers"],
)
def test_a_line_without_an_end_is_refused_while_it_is_sent(
    served: Served, begun: bytes, more: bytes
) -> None:
    with served.open() as connection:
        connection.sendall(begun)
        for _ in range(10):
            connection.sendall(more)
        assert_refused(until_end(connection), 400, "invalid_request")


def test_pipelined_requests_are_answered_in_their_order(served: Served) -> None:
    posts = [POST + b"Content-Length: 1\r\n\r\n%d" % number for number in range(5)]
    last = b"GET /v1/last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = served.raw(b"".join(posts) + CHUNKED + b"2\r\nok\r\n0\r\nX-A: a\r\n\r\n" + last)

    assert answer.count(b"HTTP/1.1 200 OK") == 7
    assert [request.path for request in served.api.requests] == ["/v1/x"] * 6 + ["/v1/last"]


def test_the_values_of_a_repeated_header_are_joined_and_its_name_is_noted(served: Served) -> None:
    served.raw(POST + b"X-A: 1\r\nX-A: 2\r\nConnection: close\r\n\r\n")

    (request,) = served.api.requests
    assert (request.headers["x-a"], request.repeated) == ("1, 2", frozenset({"x-a"}))
