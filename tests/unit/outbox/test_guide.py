"""The guide's code runs as it stands."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headrace.testing import MemoryService

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "how-to" / "outbox.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
FOR_DJANGO = [code for code in CODE if code.startswith("# ")]
FOR_SQLALCHEMY = [code for code in CODE if code not in FOR_DJANGO]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module, as type hints want one, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    module = sys.modules["shop"] = ModuleType("shop")
    yield module
    del sys.modules["shop"]
    module.engine.dispose()


def test_the_guide_runs_as_it_stands(shop: ModuleType) -> None:
    first, enqueue, workflows, background, tests = FOR_SQLALCHEMY
    exec(first, vars(shop))  # noqa: S102 (that is what is tested)
    with MemoryService() as service, service.serving(shop.app):
        exec(enqueue, vars(shop))  # noqa: S102 (likewise)
        exec(workflows, vars(shop))  # noqa: S102 (likewise)
        exec(background, vars(shop))  # noqa: S102 (likewise)
        service.client.create_queue("archive")
        shop.outbox.relay(shop.engine, shop.app).drain()
        mail = list(service.client.list_tasks("mail"))
        archive = list(service.client.list_tasks("archive"))
    exec(tests, vars(shop))  # noqa: S102 (likewise)
    shop.test_a_receipt_is_sent()

    assert shop.receipt in [task.id for task in mail]
    assert (len(mail), len(archive)) == (7, 1)


DJANGO = """
import sys
from types import ModuleType
import django
from django.conf import settings
from django.core.management import call_command
from headrace.testing import MemoryService

shop = sys.modules["shop"] = ModuleType("shop")
installed, tasks, views = map(str, eval(sys.argv[1]))
exec(installed, vars(shop))
database = {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[2]}
settings.configure(INSTALLED_APPS=shop.INSTALLED_APPS, DATABASES={"default": database})
django.setup()
call_command("migrate", verbosity=0)
exec(tasks, vars(shop))
with MemoryService() as service, service.serving(shop.app):
    service.client.create_queue("archive")
    exec(views, vars(shop))
    print(dict(shop.outbox.relay(shop.app).drain()))
    with shop.outbox.relay(shop.app):
        pass
"""


def test_the_part_for_django_runs_as_it_stands(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", DJANGO, repr(FOR_DJANGO), str(tmp_path / "shop.db")],
        env={"PYTHONPATH": "functions"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert ran.stdout == "{'CREATED': 6}\n", ran.stderr
