"""Ids are drawn as the examples are, so that an example runs the same whenever it is run."""

import random
from types import SimpleNamespace

import pytest

from headrace.domain import ids


@pytest.fixture(autouse=True)
def drawn_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the bits of ids from the generator that Hypothesis seeds for each example.

    By them tasks of one time are ordered: bits from the system would make another run of the same
    example, and what fails once in a hundred runs would fail for no change that anybody made.
    """
    drawn = SimpleNamespace(randbits=random.getrandbits, token_bytes=random.randbytes)
    monkeypatch.setattr(ids, "secrets", drawn)
