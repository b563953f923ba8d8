"""Only a service within this process may name files of this machine."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import httpx2 as httpx
import pytest

from headrace import Client
from headrace.client.payloads import fetched
from headrace.domain.errors import HeadraceError
from tests.unit.client.network import AT
from tests.unit.client.test_calls import TASK


def serving(answer: Callable[[], object]) -> Client:
    """Return a client of a service that gives *answer* to everything."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=answer()))
    return Client("http://127.0.0.1:9", "a-key", transport=transport, retries=0)


@pytest.mark.parametrize("scheme", ["file", " file"])
def test_a_task_whose_payload_is_a_file_here_is_refused(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "secret").write_text("x")
    url = f"{scheme}://{tmp_path}/secret"
    digest = hashlib.sha256(b"x").hexdigest()
    lease = {"id": "l", "expires_at": AT}
    task = {**TASK, "lease": lease, "payload_url": url, "payload_sha256": digest}
    answer = {"tasks": [task], "poll_after_seconds": 1, "now": AT}

    with serving(lambda: answer) as client, pytest.raises(HeadraceError, match="payload_url"):
        client.dequeue("mail")


def test_an_upload_to_a_file_here_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    content, there = tmp_path / "content", tmp_path / "there"
    content.write_text("x")
    granted = {
        "payload_ref": "r",
        "url": there.as_uri(),
        "headers": {},
        "expires_at": "2030-01-01T00:00:00Z",
    }

    with serving(lambda: granted) as client, pytest.raises(HeadraceError, match="file of this"):
        client.upload("mail", content)
    assert not there.exists()


def test_over_a_file_payloads_are_files_that_only_their_owner_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_PAYLOAD_OFFLOAD_BYTES", "32768")
    before = os.umask(0o000)
    try:
        with Client(f"file:{tmp_path}/tasks.db") as client:
            client.create_queue("mail")
            content = tmp_path / "content"
            content.write_bytes(b"x" * 50_000)
            client.enqueue_file("mail", content)
            client.enqueue("mail", "y" * 50_000)
            uploaded, large = client.dequeue("mail", batch_size=2).tasks
            got = fetched(uploaded, tmp_path / "got")
    finally:
        os.umask(before)

    assert got.read_bytes() == content.read_bytes()
    assert json.loads(bytes(large.payload_json)) == "y" * 50_000
    kept = [path for path in (tmp_path / "tasks.db-payloads").rglob("*") if path.is_file()]
    assert len(kept) == 2
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
