"""The outbox for Django, on SQLite and on PostgreSQL: in the transaction, or not at all."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import django
import pytest
import sqlalchemy as sa
from django.core.management import call_command, execute_from_command_line
from django.db import connections, transaction

from headrace.outbox.django import DjangoOutbox
from headrace.outbox.relay import Relay
from headrace.testing import MemoryService

SETTINGS = "tests.unit.outbox.bookshop.settings"
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Django, set up once: its settings are the process's."""
    file = tmp_path_factory.mktemp("bookshop") / "books.db"
    os.environ |= {"DJANGO_SETTINGS_MODULE": SETTINGS, "BOOKSHOP_SQLITE": str(file)}
    django.setup()
    yield file
    for name in ("DJANGO_SETTINGS_MODULE", "BOOKSHOP_SQLITE"):
        del os.environ[name]


@dataclass
class Bookshop:
    """A database of the project, and the service."""

    using: str
    service: MemoryService

    @property
    def outbox(self) -> DjangoOutbox:
        return DjangoOutbox(using=self.using)

    @property
    def relay(self) -> Relay:
        return self.outbox.relay(self.service.client)

    @property
    def books(self) -> Any:
        from tests.unit.outbox.bookshop.models import Book  # noqa: PLC0415 (once Django is ready)

        return Book.objects.using(self.using)

    def sell(self, *titles: str) -> list[str]:
        """Write books and their tasks in one transaction."""
        with transaction.atomic(using=self.using):
            for title in titles:
                self.books.create(title=title)
            return [self.outbox.enqueue(send_invoice(), book=title) for title in titles]

    def tasks(self) -> list[str]:
        return [task.id for task in self.service.client.list_tasks("mail")]


def send_invoice() -> Any:
    from tests.unit.outbox.bookshop import tasks  # noqa: PLC0415 (once Django is ready)

    return tasks.send_invoice


def migrated(using: str) -> None:
    call_command("migrate", database=using, run_syncdb=True, verbosity=0)


@pytest.fixture(params=["default", "postgres"])
def shop(
    request: pytest.FixtureRequest, project: Path, service: MemoryService
) -> Iterator[Bookshop]:
    if request.param == "postgres":
        url = sa.make_url(request.getfixturevalue("postgres_url"))
        connections["postgres"].settings_dict["PORT"] = str(url.port)
    migrated(request.param)
    yield Bookshop(request.param, service)
    call_command("flush", database=request.param, interactive=False, verbosity=0)
    connections[request.param].close()


def test_a_task_is_committed_with_the_data_it_is_about(shop: Bookshop) -> None:
    ids = shop.sell("Ulysses", "Emma")

    assert shop.tasks() == []
    assert shop.relay.drain() == {"CREATED": 2}
    assert shop.tasks() == ids
    task = shop.service.client.get_task(ids[0], payload=True)
    assert task.payload == {"task": "invoice", "args": {"book": "Ulysses"}}
    assert shop.outbox.open().state().waiting == 0


def test_what_is_rolled_back_is_never_enqueued(shop: Bookshop) -> None:
    with transaction.atomic(using=shop.using):
        shop.outbox.enqueue(send_invoice(), book="Emma")
        shop.books.create(title="Emma")
        transaction.set_rollback(True, using=shop.using)

    assert shop.relay.drain() == {}
    assert shop.books.count() == 0


@pytest.fixture
def sqlite_shop(project: Path, service: MemoryService) -> Iterator[Bookshop]:
    migrated("default")
    yield Bookshop("default", service)
    call_command("flush", interactive=False, verbosity=0)


def test_the_migration_makes_what_the_model_says(sqlite_shop: Bookshop) -> None:
    call_command("makemigrations", "headrace_outbox", check=True, dry_run=True, verbosity=0)


def test_manage_py_runs_the_command(sqlite_shop: Bookshop, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite_shop.sell("Emma")
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)

    with pytest.raises(SystemExit) as ended:
        execute_from_command_line(
            ["manage.py", "headrace", "outbox", "status", "django:", "--json"]
        )

    assert ended.value.code == 0
    assert '"waiting": 1' in out.getvalue()


def command(*words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli.main", *words],
        env={"PYTHONPATH": f"{ROOT / 'functions'}:{ROOT}", **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow
def test_the_command_finds_a_project_by_its_settings(tmp_path: Path) -> None:
    file = str(tmp_path / "books.db")

    made = command("outbox", "create", f"django:{SETTINGS}", BOOKSHOP_SQLITE=file)
    shown = command("outbox", "status", f"django:{SETTINGS}", "--json", BOOKSHOP_SQLITE=file)
    nowhere = command("outbox", "status", "django:no.such.settings")
    none = command("outbox", "status", "django:")

    assert made.returncode == 0, made.stderr
    assert '"waiting": 0' in shown.stdout
    assert (nowhere.returncode, none.returncode) == (2, 2)
    assert "cannot load Django's settings: No module named 'no'" in nowhere.stderr
    assert "cannot load Django's settings" in none.stderr
