"""What raw sockets may send to the local service.

Everything that two readers could take for two different things is refused, and ends the connection.
"""

from collections.abc import Iterator

import pytest

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
        pytest.param(POST + b"X-A: a\r\n b\r\n\r\n", id="folded"),
        pytest.param(b"GET /v1/x HTTP/1.1\r\nHost : x\r\n\r\n", id="space before the colon"),
        pytest.param(POST + b"Host: y\r\n\r\n", id="two hosts"),
        pytest.param(b"GET /v1/x HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(POST + b"X-A: a\nX-B: b\r\n\r\n", id="one bare line feed"),
        pytest.param(CHUNKED + b"zz\r\n", id="chunk without a size"),
        pytest.param(CHUNKED + b"1\r\nab0\r\n\r\n", id="chunk that goes on"),
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


def test_requests_sent_ahead_are_answered_in_their_order(served: Served) -> None:
    posts = [POST + b"Content-Length: 1\r\n\r\n%d" % number for number in range(5)]
    last = b"GET /v1/last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = served.raw(b"".join(posts) + CHUNKED + b"2\r\nok\r\n0\r\nX-A: a\r\n\r\n" + last)

    assert answer.count(b"HTTP/1.1 200 OK") == 7
    assert [event["path"] for event in served.handler.events] == ["/v1/x"] * 6 + ["/v1/last"]


@pytest.mark.parametrize("sent", [b"GET /v1/x HT", POST + b"Content-Length: 9\r\n\r\nshort"])
def test_a_client_that_ends_in_the_middle_is_told(served: Served, sent: bytes) -> None:
    with served.open() as connection:
        connection.sendall(sent)
        connection.shutdown(1)
        assert_refused(until_end(connection), 400, "invalid_request")
    assert served.handler.events == []


@pytest.mark.parametrize("host", [b"a/b", b"x@y", b"[evil]"])
def test_a_host_that_cannot_be_one_is_a_400(served: Served, host: bytes) -> None:
    answer = served.raw(b"GET /v1/x HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")

    assert_refused(answer, 400, "invalid_request")
    assert served.handler.events == []
