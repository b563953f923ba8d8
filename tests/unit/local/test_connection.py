"""A connection whose client does not take what it asked for: no more is asked, and it ends."""

from dataclasses import dataclass, field

import pytest

from headrace.http.events import GatewayAnswer
from headrace.local.connection import Connection, Done
from headrace.local.phases import SECONDS, Phase
from headrace.local.requests import LocalRequest

GET = b"GET /v1/x HTTP/1.1\r\nHost: x\r\n\r\n"


@dataclass
class KeptTransport:
    """A transport that keeps what is written."""

    written: bytes = b""
    gone: bool = False
    reading: bool = True

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.gone = True

    close = abort

    def is_closing(self) -> bool:
        return self.gone

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        return "127.0.0.1", 8080


@dataclass
class Owner:
    """A server whose requests the test answers."""

    stopping: bool = False
    now: float = 0.0
    requested: list[Done] = field(default_factory=list)

    def joined(self, connection: Connection) -> None:
        pass

    def left(self, connection: Connection) -> None:
        pass

    def holds(self, size: int, source: str) -> bool:
        return size <= 0

    def incoming(self, _request: LocalRequest, _length: int | None) -> None:
        return None

    def work(self, _request: LocalRequest, done: Done) -> None:
        self.requested.append(done)


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def wire() -> KeptTransport:
    return KeptTransport()


@pytest.fixture
def connection(owner: Owner, wire: KeptTransport) -> Connection:
    made = Connection(owner, max_body=1000, max_head=1000, clock=lambda: owner.now)
    made.connection_made(wire)
    return made


def answer(connection: Connection, owner: Owner, *, full: bool) -> None:
    """Answer what was asked; *full*: the client does not keep up."""
    if full:
        connection.pause_writing()
    owner.requested.pop()(GatewayAnswer(200, [], b"fine"))


def test_the_next_request_waits_until_the_answer_before_is_taken(
    connection: Connection, owner: Owner, wire: KeptTransport
) -> None:
    connection.data_received(GET * 2)
    answer(connection, owner, full=True)
    assert (owner.requested, connection.phase) == ([], Phase.TAKEN)

    connection.resume_writing()

    answer(connection, owner, full=False)
    assert wire.written.count(b"HTTP/1.1 200 OK") == 2
    assert connection.phase is Phase.IDLE


def test_an_answer_has_a_minute_to_be_taken(
    connection: Connection, owner: Owner, wire: KeptTransport
) -> None:
    connection.data_received(GET)
    assert connection.deadline == float("inf"), "a handler has its own time"
    answer(connection, owner, full=True)
    assert connection.deadline == owner.now + SECONDS[Phase.TAKEN]

    connection.overdue()

    assert wire.gone


def test_no_more_is_read_ahead_than_has_a_bound(
    connection: Connection, owner: Owner, wire: KeptTransport
) -> None:
    connection.data_received(GET)
    reads = []
    for _ in range(3):
        connection.data_received(GET * 1000)
        reads.append(wire.reading)
    assert reads == [True, True, False]

    answer(connection, owner, full=False)

    assert wire.reading
    assert len(owner.requested) == 1


def test_an_answer_to_who_has_hung_up_is_thrown_away(
    connection: Connection, owner: Owner, wire: KeptTransport
) -> None:
    connection.data_received(GET)
    wire.abort()
    connection.connection_lost(None)

    answer(connection, owner, full=False)

    assert wire.written == b""
