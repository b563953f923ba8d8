"""Payloads that are kept outside the table, in the bucket of the deployed stack."""

from pathlib import Path
from typing import Any

import boto3
import pytest

from headrace import Client
from tests.e2e.conftest import soon, succeed, take
from tests.e2e.stack import Stack

pytestmark = pytest.mark.gate

LARGE = {"text": "é" * 40_000}
FILM = bytes(range(256)) * 2_000


@pytest.fixture(scope="module")
def bucket(stack: Stack) -> str:
    """Give the name of the bucket for payloads."""
    name: str = stack.resources()["Payloads"]["PhysicalResourceId"]
    return name


def kept(bucket: str, task_id: str | None) -> list[str]:
    assert task_id
    found: dict[str, Any] = boto3.client("s3").list_objects_v2(Bucket=bucket)
    return [one["Key"] for one in found.get("Contents", ()) if task_id in one["Key"]]


def test_a_large_payload_goes_through_the_bucket_and_leaves_it_with_its_task(
    client: Client, bucket: str
) -> None:
    client.create_queue("e2e.large", history_retention_in_seconds=0)
    made = client.enqueue("e2e.large", LARGE)
    assert len(kept(bucket, made.id)) == 1
    task = take(client, "e2e.large")
    assert task.payload == LARGE
    succeed(client, task)

    soon(lambda: not kept(bucket, made.id), seconds=60, what="the object dropped with its task")


def test_an_upload_goes_to_the_bucket_and_from_there_to_its_worker(
    client: Client, bucket: str, tmp_path: Path
) -> None:
    client.create_queue("e2e.films")
    film, there = tmp_path / "film.bin", tmp_path / "there.bin"
    film.write_bytes(FILM)
    made = client.enqueue_file("e2e.films", film)
    assert len(kept(bucket, made.id)) == 1
    task = take(client, "e2e.films")

    assert (task.id, task.payload, task.payload_bytes) == (made.id, None, len(FILM))
    assert client.download(task, there).read_bytes() == FILM
