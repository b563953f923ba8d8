"""Connections go to addresses that were checked, whatever a name leads to a moment later."""

import threading
from collections.abc import Sequence
from typing import Any

import httpcore2 as httpcore
import pytest

from headrace.domain.push import PushHosts
from headrace.push.connections import GuardedBackend, TargetRefused


class Asked(httpcore.NetworkStream):
    """A connection that is only looked at."""


class Network:
    """Names with the addresses they have, one list for each time they are resolved."""

    def __init__(self, *answers: Sequence[str] | Exception, dead: Sequence[str] = ()) -> None:
        self.answers, self.dead = list(answers), dead
        self.connected: list[tuple[str, int]] = []

    def resolve(self, _host: str, _port: int) -> Sequence[str]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def connect(self, address: str, port: int, _timeout: float | None) -> httpcore.NetworkStream:
        self.connected.append((address, port))
        if address in self.dead:
            raise httpcore.ConnectError("refused")
        return Asked()

    def backend(self, hosts: str = "", **more: Any) -> GuardedBackend:
        return GuardedBackend(
            PushHosts.parse(hosts), resolve=self.resolve, connect=self.connect, **more
        )


def test_a_name_is_connected_to_at_the_address_that_was_checked() -> None:
    network = Network(["8.8.8.8", "1.1.1.1"])
    network.backend().connect_tcp("a.example", 443)
    assert network.connected == [("8.8.8.8", 443)]


def test_rebinding_finds_nothing_as_a_name_is_resolved_once_for_each_connection() -> None:
    network = Network(["8.8.8.8"], ["127.0.0.1"])
    backend = network.backend()
    backend.connect_tcp("a.example", 443)
    with pytest.raises(TargetRefused, match=r"127\.0\.0\.1"):
        backend.connect_tcp("a.example", 443)
    assert network.connected == [("8.8.8.8", 443)]


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["8.8.8.8", "10.0.0.1"],
        ["::ffff:192.168.1.1"],
        ["2002:a00:1::"],
        ["fe80::1%eth0"],
        ["no address"],
    ],
)
def test_a_name_with_an_address_that_must_not_be_asked_is_refused(addresses: list[str]) -> None:
    network = Network(addresses)
    with pytest.raises(TargetRefused, match=r"a\.example must not lead into a private network"):
        network.backend().connect_tcp("a.example", 443)
    assert network.connected == []


def test_a_resolver_that_does_not_answer_ends_at_the_deadline() -> None:
    released = threading.Event()

    def resolve(_host: str, _port: int) -> Sequence[str]:
        released.wait(10)
        return []

    backend = GuardedBackend(PushHosts(), resolve=resolve, monotonic=lambda: 100.0)
    backend.until = 100.01
    with pytest.raises(httpcore.ConnectTimeout, match="not resolved in time"):
        backend.connect_tcp("a.example", 443)
    released.set()
