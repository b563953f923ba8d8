"""The local service keeps the raw changes of its tasks in its data folder."""

import gzip
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client.client import Client
from headrace.local.launch import launched
from tests.modes import modes

SOON = 30.0


def lines(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("raw/dt=*/hh=*/*.json.gz"))
    return [json.loads(line) for file in files for line in gzip.open(file)]


@pytest.fixture
def open_to_all() -> Iterator[None]:
    """Let this process, and what it starts, make files that everybody may read and write."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.slow
@pytest.mark.usefixtures("open_to_all")
def test_raw_changes_are_in_the_data_folder(tmp_path: Path) -> None:
    with launched(data_dir=tmp_path) as service, Client(service.url, service.admin_key) as client:
        client.create_queue("mail")
        client.enqueue("mail", {"text": "x" * 20_000}, id="t1")
        client.dequeue("mail", worker="w1")
        end = time.monotonic() + SOON
        while len(lines(tmp_path / "lake")) < 2 and time.monotonic() < end:
            time.sleep(0.05)

        assert modes(tmp_path) == {0o700, 0o600}  # the engine's files and the lake's, all the same

    first, second = lines(tmp_path / "lake")
    assert (first["move"], first["queue_to"], first["version"]) == ("enqueue", "mail", 1)
    assert (second["move"], second["worker"]) == ("dequeue", "w1")
    assert first["payload_bytes"] > 20_000
    assert "payload" not in first
