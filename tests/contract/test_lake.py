"""What every lake promises, and that a batch reaches it before it counts as recorded."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from headrace.domain.errors import InvalidRequest, Unavailable
from headrace.domain.offload import Lake, PieceLake
from headrace.history.changelog import Changelog
from headrace.history.recorder import Recorded
from headrace.store.base import Store
from headrace.store.lake import FolderLake, S3Access, lake_at
from tests.contract.test_recording import Recorder, new_recorder
from tests.manual_clock import ManualClock


@pytest.fixture(params=["folder", "s3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PieceLake]:
    if request.param == "folder":
        yield lake_at(str(tmp_path / "lake"))
        return
    request.getfixturevalue("aws_credentials")
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket="a-lake")
        yield lake_at("s3://a-lake/of/tests")


def test_a_file_holds_what_was_written_last(lake: Lake) -> None:
    assert lake.get("state/x.json") is None
    lake.put("state/x.json", b"one")
    lake.put("state/x.json", b"two")

    assert lake.get("state/x.json") == b"two"
    within = [range(2), range(1, 9), range(3, 9)]
    assert [lake.get("state/x.json", part) for part in within] == [b"tw", b"wo", b""]
    assert lake.get("state/y.json", range(2)) is None


def test_a_file_is_read_in_pieces_and_listed_by_the_beginning_of_its_name(lake: PieceLake) -> None:
    content = b"x" * 1_500_000
    for name, text in (("raw/b", content), ("raw/a", b"1"), ("state/c", b"")):
        lake.put(name, text)

    with lake.pieces("raw/b") as pieces, lake.pieces("raw/none") as none:
        assert pieces is not None
        assert b"".join(pieces) == content
        assert none is None
    assert [(one.name, one.size) for one in lake.list("raw/")] == [
        ("raw/a", 1),
        ("raw/b", 1_500_000),
    ]
    assert [one.name for one in lake.list("raw/a")] == ["raw/a"]


@pytest.mark.usefixtures("aws_credentials")
@pytest.mark.parametrize("whole", [True, False])
def test_a_bucket_that_does_not_exist_is_no_outage(*, whole: bool) -> None:
    lake = lake_at("s3://nowhere")

    def read() -> None:
        if whole:
            lake.get("x")
        else:
            with lake.pieces("x"):
                pass

    with mock_aws(), pytest.raises(ClientError, match="NoSuchBucket"):
        read()


@pytest.mark.usefixtures("aws_credentials")
def test_a_lake_is_reached_in_the_region_and_as_the_role_that_are_named() -> None:
    access = S3Access("arn:aws:iam::123456789012:role/lake", "eu-west-1")
    with mock_aws():
        where = {"LocationConstraint": "eu-west-1"}
        client = boto3.client("s3", region_name="eu-west-1")
        client.create_bucket(Bucket="a-lake", CreateBucketConfiguration=where)
        lake = lake_at("s3a://a-lake", access=access)
        lake.put("x", b"one")

        assert lake.get("x") == b"one"


def test_an_address_of_another_kind_is_no_lake() -> None:
    with pytest.raises(InvalidRequest, match="must be s3://bucket/prefix or the path of a folder"):
        lake_at("gs://a-lake")


@pytest.mark.usefixtures("aws_credentials")
def test_an_unreachable_bucket_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")

    with pytest.raises(Unavailable, match="the lake cannot be reached"):
        lake_at("s3://nowhere").put("x", b"")


# ---- The recorder


@pytest.fixture
def it(store: Store, clock: ManualClock) -> Recorder:
    return new_recorder(store, clock)


def lines(lake: Lake) -> list[dict[str, Any]]:
    texts = [gzip.decompress(lake.get(one.name) or b"") for one in lake.list("raw/")]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def test_a_line_has_no_lease_and_a_payload_only_if_a_pattern_names_the_queue(
    it: Recorder, tmp_path: Path
) -> None:
    lake, leases = FolderLake(tmp_path), list[str]()
    it.recording.changelog = Changelog(lake, ("orders*", "fax"))
    for queue in ("orders.a", "mail"):
        it.world.put(it.world.queue(queue), '{"n": 1}')
        leases += str(it.world.one(queue).lease_id).split(".")

    it.record()

    found = lines(lake)
    assert {line["queue_to"] for line in found if "payload" in line} == {"orders.a"}
    assert all("lease_to" in line for line in found if line["move"] == "dequeue")
    assert not [part for part in leases if len(part) > 8 and part in json.dumps(found)]


def test_a_chunk_that_does_not_reach_the_lake_is_not_counted_and_is_retried(
    it: Recorder, tmp_path: Path
) -> None:
    lake = FolderLake(tmp_path)
    (tmp_path / "raw").write_text("in the way")
    it.recording.changelog = Changelog(lake)
    queue = it.world.queue()
    it.world.put(queue)
    changes = it.stream.taken()

    assert it.record(changes) == Recorded(0, 0, (), failed_at=1)
    assert it.counts(queue) == (0, 0, 0, 0, 0)
    (tmp_path / "raw").unlink()

    assert it.record(changes).counted == 1
    assert it.record(changes).repeated == 1
    assert len(lines(lake)) == 1
