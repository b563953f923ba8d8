"""What every place for texts of tasks promises: a folder, memory, S3."""

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from headrace.domain.errors import Unavailable
from headrace.domain.offload import ObjectStore
from headrace.store.objects import FolderObjects, MemoryObjects, objects_at, objects_beside
from tests.unit.push.receiver import GivenAnswer, receiving

pytestmark = pytest.mark.usefixtures("aws_credentials")


@pytest.fixture(params=["memory", "folder", "s3"])
def objects(
    request: pytest.FixtureRequest, aws_credentials: None, tmp_path: Path
) -> Iterator[ObjectStore]:
    if request.param == "memory":
        yield MemoryObjects()
        return
    if request.param == "folder":
        yield objects_at(str(tmp_path / "payloads"))
        return
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket="payloads")
        yield objects_at("s3://payloads/of/tests")


def test_get_returns_the_objects_that_exist(objects: ObjectStore) -> None:
    objects.put({"task-1/a": b"one", "task-2/b": b"two"})

    assert objects.get(["task-1/a", "task-2/b", "task-3/c"]) == {
        "task-1/a": b"one",
        "task-2/b": b"two",
    }


def test_a_dropped_object_does_not_exist_and_may_be_dropped_again(objects: ObjectStore) -> None:
    objects.put({"task-1/a": b"one", "task-1/b": b"two"})
    for _ in range(2):
        objects.drop(["task-1/a", "task-9/z"])
    objects.drop([])

    assert objects.get(["task-1/a", "task-1/b"]) == {"task-1/b": b"two"}


def test_sizes_are_returned_for_objects_that_exist(objects: ObjectStore) -> None:
    objects.put({"task-1/a": b"one", "task-1/b": b"four"})

    assert objects.sizes(["task-1/a", "task-1/b", "task-9/z"]) == {"task-1/a": 3, "task-1/b": 4}
    assert objects.sizes([]) == {}
    assert not objects.unused()


@pytest.mark.parametrize("page", [1, 7, 100])
def test_a_list_continues_after_a_name_and_dates_each_object(
    objects: ObjectStore, page: int
) -> None:
    names = {f"task-{number}/t{number}" for number in range(20)}
    objects.put(dict.fromkeys(names, b"x"))
    seen: list[str] = []
    after = ""
    while found := objects.list(after, page):
        assert len(found) <= page
        assert all(abs(one.written_at - datetime.now(UTC)) < timedelta(hours=1) for one in found)
        seen += [one.name for one in found]
        after = found[-1].name

    assert len(seen) == len(names)
    assert set(seen) == names


@pytest.mark.parametrize("where", ["memory", "folder"])
def test_an_object_received_in_parts_exists_after_it_is_kept(where: str, tmp_path: Path) -> None:
    file = str(tmp_path / "headrace.db")
    objects = objects_beside(file, memory=file if where == "memory" else ":memory:")
    assert isinstance(objects, FolderObjects | MemoryObjects)
    assert objects.unused()
    kept, abandoned = objects.receive("task-1/a"), objects.receive("task-1/b")
    for one in (kept, abandoned):
        one.write(b"on")
        one.write(b"e")
    assert objects.open("task-1/a") is None

    kept.keep()
    abandoned.abandon()

    found = objects.open("task-1/a")
    assert found is not None
    with found:
        assert found.read() == b"one"
    assert objects.get(["task-1/a", "task-1/b"]) == {"task-1/a": b"one"}


# -- a folder ------------------------------------------------------------------------------------


def test_a_half_written_file_is_no_object_and_is_listed_for_the_sweep(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    objects.put({"task-1/a": b"one"})
    (path,) = (one for one in tmp_path.rglob("*") if one.is_file())
    path.rename(path.with_name(path.name + ".part"))

    assert objects.get(["task-1/a"]) == {}
    (left,) = objects.list("", 10)
    objects.drop([left.name])
    assert objects.list("", 10) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(Unavailable, match="cannot be written"):
        FolderObjects(tmp_path / "x").put({"task-1/a": b"one"})


def test_a_file_in_place_of_the_folder_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(Unavailable, match="payloads beside the file cannot be written"):
        FolderObjects(tmp_path / "x").put({"task-1/a": b"one"})


# -- S3 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "names"),
    [("put", {"task-1/a": b"x", "task-1/b": b"y"}), ("get", ["task-1/a"]), ("drop", ["task-1/a"])],
)
def test_an_unreachable_s3_makes_the_service_unavailable(
    call: str, names: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    with pytest.raises(Unavailable, match="store of payloads cannot be reached"):
        getattr(objects_at("s3://payloads"), call)(names)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        ("put", {"task-1/a": b"x"}),
        ("get", ["task-1/a"]),
        ("list", ["", 10]),
    ],
)
def test_a_bucket_that_does_not_exist_is_no_outage(call: str, names: Any) -> None:
    given = names if call == "list" else [names]
    with mock_aws(), pytest.raises(ClientError, match="NoSuchBucket"):
        getattr(objects_at("s3://payloads"), call)(*given)


def answered(
    monkeypatch: pytest.MonkeyPatch, given: GivenAnswer, call: Callable[[ObjectStore], object]
) -> None:
    """Make *call* where S3 answers what is *given*."""
    with receiving(lambda _: given) as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.url.removesuffix("/hook"))
        call(objects_at("s3://payloads"))


def test_an_object_that_s3_does_not_remove_makes_the_service_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = b"<DeleteResult><Error><Key>a</Key><Code>InternalError</Code></Error></DeleteResult>"
    with pytest.raises(Unavailable, match="payloads cannot be removed: InternalError"):
        answered(monkeypatch, GivenAnswer(200, body), lambda objects: objects.drop(["a"]))


def test_an_s3_that_refuses_makes_the_service_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="store of payloads does not answer: 403"):
        answered(monkeypatch, GivenAnswer(403, b""), lambda objects: objects.drop(["a"]))
