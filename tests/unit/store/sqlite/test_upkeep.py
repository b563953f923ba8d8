"""Removal of what is kept no longer, backups, and damaged files."""

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.domain.errors import InvalidRequest
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.runtime.service import Service
from headrace.runtime.wiring import Settings, build
from headrace.store.base import Record
from headrace.store.sqlite import SqliteStore
from headrace.store.sqlite.file import Unusable
from headrace.store.sqlite.upkeep import Forgotten
from tests.manual_clock import ManualClock


@pytest.fixture
def use(store: SqliteStore, clock: ManualClock) -> Service:
    use = build(Settings(admin_key="test"), store, now=clock)
    use.queues.create("mail", QueueSettings(expires_in_seconds=10))
    return use


def enqueue(use: Service, count: int, payload: str = "{}") -> list[str]:
    """Enqueue tasks and return their ids."""
    ids: list[str] = []
    while len(ids) < count:
        some = [TaskSpec(payload)] * min(25, count - len(ids))
        ids += [str(result.id) for result in use.tasks.enqueue("mail", some)]
    return ids


def test_expired_tasks_and_records_are_removed_in_steps(
    use: Service, store: SqliteStore, clock: ManualClock
) -> None:
    enqueue(use, 10)
    clock.forward(11)
    use.reaping.run()  # of these only the ids are kept, for a while
    store.renew_record(Record("test", "old", {}, 1, clock() + timedelta(seconds=5)))
    store.renew_record(Record("test", "kept", {}, 1, clock() + timedelta(days=500)))
    store.renew_record(Record("test", "for ever", {}, 1))
    assert store.forget() == Forgotten(0, 0)
    clock.forward(86_400 * 400)
    (fresh,) = enqueue(use, 1)

    steps = [store.forget(4) for _ in range(5)]

    assert sum(step.tasks for step in steps) == 10
    assert all(step.total <= 4 for step in steps)
    assert steps[-1].total == 0
    assert [store.record("test", name) is None for name in ("old", "kept", "for ever")] == [
        True, False, False
    ]  # fmt: skip
    assert list(store.read([fresh])) == [fresh]


def test_pages_of_a_trial_write_are_freed_in_steps(store: SqliteStore) -> None:
    store.try_write()

    assert not store.records("trial", limit=10)[0]
    left = store.vacuum(10)
    assert left > 0
    assert store.vacuum(10) == left - 10
    assert store.vacuum(1_000) == 0


# -- backup ----------------------------------------------------------------------------------------


def test_a_backup_to_an_impossible_path_is_refused(store: SqliteStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="must be in a folder that exists"):
        store.backup(str(tmp_path / "none" / "copy.db"))
    with pytest.raises(Unusable, match="File name too long"):
        store.backup(str(tmp_path / ("n" * 300)))


def test_a_backup_is_made_where_a_file_has_one_name_only(
    use: Service, store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = enqueue(use, 3)

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    store.backup(str(tmp_path / "copy.db"))

    copy = SqliteStore(str(tmp_path / "copy.db"))
    assert sorted(copy.read(ids)) == sorted(ids)
    copy.close()


# -- damage ----------------------------------------------------------------------------------------


def test_check_lists_the_damage_and_a_read_raises_one_clear_error(
    use: Service, store: SqliteStore, path: Path
) -> None:
    ids = enqueue(use, 500, json.dumps("x" * 1000))
    store.close()
    content = bytearray(path.read_bytes())
    for page in range(20, len(content) // 4096, 3):
        content[page * 4096 : page * 4096 + 2048] = b"\xff" * 2048
    path.write_bytes(content)
    damaged = SqliteStore(str(path))

    assert damaged.check()
    with pytest.raises(Unusable, match="it is damaged: restore a backup"):
        damaged.read(ids)
    damaged.close()
