"""Large files through the local service and over a file: a part at a time, and whole."""

import hashlib
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace import Client
from headrace.domain.errors import HeadraceError, InvalidRequest
from infra.launch import Launched, launched

KEY = "hr_test-key-of-the-local-service"
MIB = 1024 * 1024
OFFLOADS = {"HEADRACE_PAYLOAD_OFFLOAD_BYTES": "32768"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    folder = tmp_path_factory.mktemp("service")
    with launched(admin_key=KEY, data_dir=folder, environment=OFFLOADS) as running:
        yield running


@pytest.fixture
def queue(client: Client, request: pytest.FixtureRequest) -> str:
    name = request.node.originalname[:60]
    client.create_queue(name)
    return str(name)


def large(path: Path, mebibytes: int) -> Path:
    with path.open("wb") as file:
        for number in range(mebibytes):
            file.write(bytes([number % 251]) * MIB)
    return path


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def round_trip(client: Client, queue: str, folder: Path, mebibytes: int) -> None:
    source = large(folder / "source", mebibytes)
    made = client.enqueue_file(queue, source, tags={"kind": "video"})
    (task,) = client.dequeue(queue).tasks
    there = client.download(task, folder / "there")

    assert made.outcome == "CREATED"
    assert (task.id, task.payload, task.payload_bytes) == (made.id, None, mebibytes * MIB)
    assert digest(there) == digest(source) == task.payload_sha256
    assert sorted(one.name for one in folder.iterdir()) == ["source", "there"]


def test_a_file_goes_through_the_service_and_comes_back(
    client: Client, queue: str, tmp_path: Path
) -> None:
    round_trip(client, queue, tmp_path, 8)


def test_an_empty_large_or_missing_file_is_refused_with_the_limit(
    client: Client, queue: str, tmp_path: Path
) -> None:
    empty, huge = tmp_path / "empty", tmp_path / "huge"
    empty.touch()
    huge.touch()
    os.truncate(huge, 1024 * MIB + 1)

    with pytest.raises(InvalidRequest, match="file is empty"):
        client.upload(queue, empty)
    with pytest.raises(InvalidRequest, match=r"at most 1073741824 bytes \(1 GiB\)"):
        client.upload(queue, huge)
    with pytest.raises(InvalidRequest, match="is no file"):
        client.upload(queue, tmp_path / "none")


# -- the service's own URLs ----------------------------------------------------------------------


def granted(client: Client, queue: str, content: bytes) -> Any:
    return client.upload_payload(
        queue, size=len(content), digest=hashlib.sha256(content).hexdigest()
    )


def sent(method: str, url: str, content: bytes | None = None) -> tuple[int, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    connection.request(method, f"{parts.path}?{parts.query}", content)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


@pytest.mark.parametrize(
    ("spoiled", "status", "says"),
    [
        ("content", 400, "sha256"),
        ("signature", 403, "allows no PUT"),
        ("until", 403, "allows no PUT"),
    ],
)
def test_only_what_was_granted_is_taken(
    client: Client, service: Launched, spoiled: str, status: int, says: str
) -> None:
    queue = f"only-{spoiled}"
    client.create_queue(queue)
    grant, content = granted(client, queue, b"0123456789"), b"0123456789"
    url = grant.url
    match spoiled:
        case "content":
            content = b"9876543210"
        case "signature":
            url = url[:-1] + ("0" if url[-1] != "0" else "1")
        case _:
            url = url.replace("until=", "until=1")
    answered, body = sent("PUT", url, content)

    assert answered == status
    assert says in json.loads(body)["detail"]
    with pytest.raises(HeadraceError, match="payload_ref was not uploaded"):
        client.enqueue(queue, payload_ref=grant.payload_ref)
    kept = Path(service.data).glob("*-payloads/*/*.part")
    assert list(kept) == []


def test_an_aborted_upload_leaves_no_file(client: Client, queue: str, service: Launched) -> None:
    grant = granted(client, queue, b"x" * 10 * MIB)
    parts = urlsplit(grant.url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    connection.putrequest("PUT", f"{parts.path}?{parts.query}")
    connection.putheader("Content-Length", str(10 * MIB))
    connection.endheaders()
    connection.send(b"x" * MIB)
    connection.close()
    content = b"x" * 10 * MIB

    assert sent("PUT", grant.url, content)[0] == 200
    assert client.enqueue(queue, payload_ref=grant.payload_ref).outcome == "CREATED"
    left = [one for one in Path(service.data).rglob("*.part") if one.stat().st_size > 0]
    assert left == []


@pytest.mark.slow
def test_the_command_uploads_a_file(
    client: Client, queue: str, service: Launched, tmp_path: Path
) -> None:
    source = large(tmp_path / "source", 1)
    command = [sys.executable, "-m", "headrace.cli.main", "enqueue", queue]
    environment = {**os.environ, "HEADRACE_URL": service.url, "HEADRACE_KEY": KEY}
    done = subprocess.run(
        [*command, "--payload-file", str(source), "--id", "video-9"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout.strip()) == (0, "video-9"), done.stderr
    (task,) = client.dequeue(queue).tasks
    assert task.payload_bytes == MIB
