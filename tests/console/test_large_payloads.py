"""Payloads that are kept outside the table: shown as others are, or what is missing is said."""

from dataclasses import replace
from hashlib import sha256

import pytest

from headrace.domain.plan import TaskSpec
from headrace.runtime.wiring import build
from headrace.store.objects import MemoryObjects
from tests.console.conftest import Browser

LARGE = '{"long": "' + "x" * 2_000 + '", "end": "the-very-end"}'


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def offloading(admin: Browser, objects: MemoryObjects) -> Browser:
    """Give a console over a service that keeps payloads over 1 KiB outside."""
    assert admin.stream is not None
    settings = replace(admin.use.settings, payload_offload_bytes=1024)
    admin.use = build(settings, admin.stream.store, now=admin.clock, objects=objects)
    admin.queue("mail")
    return admin


def test_a_task_shows_its_payload_as_if_it_were_inside(
    offloading: Browser, objects: MemoryObjects
) -> None:
    (task_id,) = offloading.put("mail", LARGE)

    assert len(objects.list("", 10)) == 1
    assert "the-very-end" in offloading.get(f"/console/tasks/{task_id}").body
    assert "the-very-end" in offloading.get(f"/console/tasks/{task_id}/enqueue").body


def test_what_cannot_be_read_now_is_named_with_its_size(
    offloading: Browser, objects: MemoryObjects
) -> None:
    (task_id,) = offloading.put("mail", LARGE)
    objects.drop([one.name for one in objects.list("", 10)])

    page = offloading.get(f"/console/tasks/{task_id}")
    assert page.status == 200
    assert "not readable now: payload (2 KiB)" in page.text
    assert offloading.get(f"/console/tasks/{task_id}/enqueue").status == 503


def test_an_upload_is_shown_by_its_size_and_is_not_copied(
    offloading: Browser, objects: MemoryObjects
) -> None:
    digest = sha256(b"film").hexdigest()
    grant = offloading.use.uploads.grant(
        "mail", size=4, digest=digest, task_id=None, origin="http://here"
    ).upload
    objects.put({grant.name: b"film"})
    new = TaskSpec("null", id=grant.task_id, upload=grant)
    offloading.use.tasks.enqueue("mail", [new])

    page = offloading.get(f"/console/tasks/{grant.task_id}")
    assert f"Uploaded payload: 4 B, sha256 {digest}" in page.text
    assert "Edit and enqueue as new" not in page.text
    copied = offloading.get(f"/console/tasks/{grant.task_id}/enqueue")
    assert copied.status == 400
    assert "Payload was uploaded: a new task needs" in copied.text
