"""Requests as the views read them: what browsers send, and what nobody but an attacker would."""

import time
from typing import Any

import pytest

from console.chalicelib.request import read_request
from headrace.http.events import proxy_event


def cookies_of(header: str) -> dict[str, str]:
    event: dict[str, Any] = proxy_event(
        "GET", "/console", request_id="1", headers={"Cookie": header}
    )
    return dict(read_request(event, "1").cookies)


@pytest.mark.parametrize(
    ("header", "cookies"),
    [
        ("a=1", {"a": "1"}),
        ("a=1; b=2", {"a": "1", "b": "2"}),
        ("a=1;b=2 ; ", {"a": "1", "b": "2"}),
        ("a=x=y==", {"a": "x=y=="}),
        ("a=the path is longest; a=2", {"a": "the path is longest"}),
        ('a="quoted"', {"a": '"quoted"'}),
        ("", {}),
        ("no equals sign", {}),
        ("a[b]=1; c=2", {"a[b]": "1", "c": "2"}),  # one odd cookie does not lose us the others
        ("é=1; b=2", {"é": "1", "b": "2"}),
    ],
)
def test_cookies_are_read_as_browsers_send_them(header: str, cookies: dict[str, str]) -> None:
    assert cookies_of(header) == cookies


@pytest.mark.parametrize("unit", ["\\\\", "\\", '"\\', "a=;", "=", "; "])
def test_ten_times_the_cookies_take_some_ten_times_as_long(unit: str) -> None:
    """With http.cookies of Python 3.11 30 KB of backslashes took 11 s: a hundred times as long."""

    def seconds(size: int) -> float:
        header = f'a="{unit * (size // len(unit))}"'
        times = []
        for _ in range(5):
            started = time.process_time()
            cookies_of(header)
            times.append(time.process_time() - started)
        return min(times)

    assert seconds(20_000) < 40 * seconds(2_000)
