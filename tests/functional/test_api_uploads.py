"""Uploaded payloads, by the API: over S3 its own URLs, elsewhere the service's."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from moto import mock_aws

from headrace.domain import limits
from headrace.runtime.wiring import Settings, build
from headrace.store.objects import MemoryObjects, objects_at
from headrace.store.sqlite import SqliteStore
from tests.functional.conftest import KEY, Service
from tests.functional.roles import OPERATOR, PRODUCER, VIEWER, WORKER, keyed
from tests.manual_clock import ManualClock

BUCKET = "payloads-of-tests"
CONTENT = b"\x00\xff no JSON" * 1000
ASKED = {"bytes": len(CONTENT), "sha256": sha256(CONTENT).hexdigest()}


class Hosted(Service):
    """The service as one with an address sees it."""

    def _headers(self) -> dict[str, str]:
        return {**super()._headers(), "Host": "headrace.test"}


@pytest.fixture
def aws(aws_credentials: None) -> Iterator[Any]:
    with mock_aws():
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket=BUCKET)
        yield s3


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def call(clock: ManualClock, objects: MemoryObjects) -> Service:
    settings = Settings(admin_key=KEY, settings_ttl_seconds=1, payload_offload_bytes=1024)
    return Hosted(clock, build(settings, SqliteStore(":memory:"), now=clock, objects=objects))


@pytest.fixture
def over_s3(aws: Any, clock: ManualClock) -> Service:
    settings = Settings(admin_key=KEY, settings_ttl_seconds=1, payload_offload_bytes=1024)
    places = objects_at(f"s3://{BUCKET}/of/tests")
    return Service(clock, build(settings, SqliteStore(":memory:"), now=clock, objects=places))


def granted(call: Service, queue: str, **others: Any) -> Any:
    answer = call("POST", f"{queue}/payloads", {**ASKED, **others})
    assert answer.status == 201, answer.body
    return answer.json


def enqueued(call: Service, queue: str, **entry: Any) -> Any:
    answer = call("POST", f"{queue}/tasks", {"tasks": [entry]})
    assert answer.status == 200, answer.body
    return answer.json["results"][0]


def put(objects: MemoryObjects, ref: str) -> None:
    objects.put({ref: CONTENT})


def test_s3_is_given_size_and_digest_to_check_and_takes_the_upload(
    over_s3: Service, aws: Any
) -> None:
    queue = over_s3.queue()
    grant = granted(over_s3, queue)
    query = parse_qs(urlsplit(grant["url"]).query)

    assert set(grant) == {"payload_ref", "url", "headers", "expires_at"}
    assert query["X-Amz-Expires"] == ["3600"]
    signed = set(query["X-Amz-SignedHeaders"][0].split(";"))
    assert {"content-length", "host", "x-amz-checksum-sha256"} <= signed
    assert grant["headers"]["Content-Length"] == str(len(CONTENT))
    assert (
        "payload_ref was not uploaded"
        in enqueued(over_s3, queue, payload_ref=grant["payload_ref"])["detail"]
    )
    aws.put_object(Bucket=BUCKET, Key=f"of/tests/{grant['payload_ref']}", Body=CONTENT)
    made = enqueued(over_s3, queue, payload_ref=grant["payload_ref"], tags={"kind": "video"})
    (task,) = over_s3.take(queue)

    assert made["outcome"] == "CREATED"
    assert (task["payload"], task["payload_bytes"]) == (None, len(CONTENT))
    assert task["payload_sha256"] == ASKED["sha256"]
    url = urlsplit(task["payload_url"])
    assert url.path.endswith(grant["payload_ref"])
    assert parse_qs(url.query)["X-Amz-Expires"] == ["3600"]


def test_the_service_signs_its_own_urls_without_s3(call: Service, objects: MemoryObjects) -> None:
    queue = call.queue()
    grant = granted(call, queue)
    put(objects, grant["payload_ref"])
    made = enqueued(call, queue, payload_ref=grant["payload_ref"])
    (task,) = call.take(queue)
    shown = call("GET", f"/v1/tasks/{made['id']}").json
    listed = call("GET", f"{queue}/tasks", query={"payload": "true"}).json["tasks"]

    assert grant["url"].startswith("http://headrace.test/v1/payloads/")
    assert grant["headers"] == {"Content-Length": str(len(CONTENT))}
    assert made["id"] == grant["payload_ref"].partition("/")[0]
    for one in (task, shown, *listed):
        assert (one["payload"], one["payload_bytes"]) == (None, len(CONTENT))
        assert "/v1/payloads/" in one["payload_url"]
    assert "payload_url" not in call("GET", f"{queue}/tasks").body


def test_roles_that_enqueue_may_upload_and_viewers_get_no_url(
    call: Service, objects: MemoryObjects
) -> None:
    queue = call.queue()
    assert keyed(call, VIEWER)("POST", f"{queue}/payloads", ASKED).status == 403
    for role in (PRODUCER, WORKER, OPERATOR):
        assert keyed(call, role)("POST", f"{queue}/payloads", ASKED).status == 201
    grant = granted(call, queue)
    put(objects, grant["payload_ref"])
    made = enqueued(call, queue, payload_ref=grant["payload_ref"])
    seen = keyed(call, VIEWER)("GET", f"/v1/tasks/{made['id']}")

    assert seen.status == 200
    assert "payload_url" not in seen.body
    assert grant["payload_ref"] not in seen.body


def test_a_bad_upload_or_reference_names_field_and_limit(call: Service) -> None:
    queue = call.queue()
    ref = granted(call, queue)["payload_ref"]
    for path, body, field, says in (
        ("payloads", {**ASKED, "bytes": limits.UPLOAD_BYTES[1] + 1}, "bytes", "1073741824"),
        ("payloads", {**ASKED, "sha256": "0" * 63}, "sha256", "64 hexadecimal digits"),
        ("tasks", {"tasks": [{"payload_ref": "nothing"}]}, "tasks[0].payload_ref", ""),
        ("tasks", {"tasks": [{"payload_ref": ref, "id": "another"}]}, "tasks[0].id", ""),
    ):
        answer = call("POST", f"{queue}/{path}", body)
        assert answer.status == 400, answer.body
        found = {one["field"]: one["message"] for one in answer.json["errors"]}
        assert says in found[field]


def test_without_an_object_store_the_answer_names_the_setting(clock: ManualClock) -> None:
    call = Service(clock, build(Settings(admin_key=KEY), SqliteStore(":memory:"), now=clock))
    answer = call("POST", f"{call.queue()}/payloads", ASKED)

    assert answer.status == 400
    assert "PayloadOffloadBytes" in answer.json["detail"]
