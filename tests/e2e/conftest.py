"""The deployed service, its stack, and the addresses of both."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from headrace import Client
from tests.e2e.stack import Stack

_T = TypeVar("_T")

_POLL_SECONDS = 1.0


@pytest.fixture(scope="session")
def stack() -> Stack:
    """Give the stack that is deployed."""
    return Stack(Path(os.environ["HEADRACE_E2E_FOLDER"], "sam.log"))


@pytest.fixture(scope="session")
def outputs(stack: Stack) -> dict[str, str]:
    """Give what the stack tells its user."""
    return stack.outputs()


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """Give a client with the first admin key, at the address that API Gateway gave the stage."""
    with Client(os.environ["HEADRACE_STAGE_URL"], os.environ["HEADRACE_KEY"]) as made:
        yield made


def soon(look: Callable[[], _T | None], *, seconds: float, what: str) -> _T:
    """The result of *look*, as soon as it finds something."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(_POLL_SECONDS)
