"""Large payloads and Spark: leased whole, written outside, and named in the table."""

import dataclasses
import hashlib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import State
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.spark.sources.columns import columns_of
from headrace.spark.sources.connect import StoreConnection, store
from headrace.spark.sources.leasing import LeaseRequest, leased, named
from headrace.spark.sources.table import TableReading, listed
from headrace.store.objects import objects_beside
from tests.pipeline.harness import PipelineHarness

MOST = 1024
LARGE = '"' + "x" * 4 * MOST + '"'


@pytest.fixture
def offloading(harness: PipelineHarness) -> PipelineHarness:
    """Give a queue over a file whose large payloads are kept beside it: one of four tasks'."""
    connection = dataclasses.replace(harness.connection, payload_offload_bytes=MOST)
    made = PipelineHarness(connection)
    made.queue("in", shards=1)
    made.uses.tasks.enqueue("in", [TaskSpec("1"), TaskSpec(LARGE), TaskSpec("2"), TaskSpec("3")])
    return made


def kept_beside(connection: StoreConnection) -> list[Path]:
    folder = Path(urlsplit(str(connection.url)).path + "-payloads")
    return [one for one in folder.rglob("*") if one.is_file()]


def payloads(offloading: PipelineHarness, group_id: str) -> list[str]:
    request = LeaseRequest(offloading.connection, "in", group_id, "tester", (100,))
    return [row["payload"] for batch in leased(request, 0) for row in batch.to_pylist()]


def test_large_payloads_are_leased_whole_and_again_by_a_second_try(
    offloading: PipelineHarness,
) -> None:
    group = offloading.uses.leases.open(None, keepalive=60)

    assert len(kept_beside(offloading.connection)) == 1
    for _ in range(2):
        assert sorted(payloads(offloading, group.id)) == sorted(["1", LARGE, "2", "3"])
    ids = [task.id for task in offloading.tasks("in")]
    (batch,) = named(offloading.connection, group.id, ids)
    assert sorted(batch.column("payload").to_pylist()) == sorted(["1", LARGE, "2", "3"])


def test_a_lost_payload_ends_its_task_and_no_other(offloading: PipelineHarness) -> None:
    (path,) = kept_beside(offloading.connection)
    path.unlink()
    group = offloading.uses.leases.open(None, keepalive=60)

    assert sorted(payloads(offloading, group.id)) == ["1", "2", "3"]
    assert offloading.states("in") == {"INFLIGHT": 3, "DEAD": 1}


def test_a_lease_names_what_was_uploaded_and_of_which_group_and_batches_a_task_is(
    offloading: PipelineHarness,
) -> None:
    uses, content = offloading.uses, b"film"
    uses.queues.create("films", QueueSettings(shards=1, groups=GroupSettings(mode=GroupMode.FAIR)))
    uses.task_batches.create({}, batch_id="night")
    digest = hashlib.sha256(content).hexdigest()
    upload = uses.uploads.grant(
        "films", size=len(content), digest=digest, task_id=None, origin="http://here"
    ).upload
    objects_beside(urlsplit(str(offloading.connection.url)).path, "").put({upload.name: content})
    new = TaskSpec("null", id=upload.task_id, upload=upload, group_key="acme", batches=("night",))
    (made,) = uses.tasks.enqueue("films", [new])
    assert made.outcome == "CREATED", made.detail
    group = uses.leases.open(None, keepalive=60)

    request = LeaseRequest(offloading.connection, "films", group.id, "tester", (100,))
    (row,) = (row for batch in leased(request, 0) for row in batch.to_pylist())

    assert (row["payload"], row["group_key"], row["batches"]) == (None, "acme", ["night"])
    assert row["payload_ref"] == f"{len(content)} {digest} {upload.name}"


def test_the_table_names_where_a_payload_is_kept(offloading: PipelineHarness) -> None:
    columns = columns_of([("id", "string"), ("payload", "string"), ("payload_ref", "string")])
    reading = TableReading(offloading.connection, columns)
    (place,) = offloading.uses.queues.get("in").places(State.ENQUEUED)

    rows = [row for batch in listed(reading, place) for row in batch.to_pylist()]

    (large,) = (row for row in rows if row["payload"] is None)
    (task,) = store(offloading.connection).read([large["id"]]).values()
    kept = task.offloaded["payload"]
    assert large["payload_ref"] == f"{len(LARGE)} {kept.sha256} {kept.name}"
    assert {row["payload_ref"] for row in rows if row is not large} == {None}
