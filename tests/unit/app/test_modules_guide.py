"""An app in several modules: the guide's package, and how `headrace work` finds an app."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import App, Client, Worker
from headrace.cli.session import CliSession
from headrace.client.app.discovery import AppNotFound, find_app
from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli, invoke

GUIDE = (Path(__file__).parents[3] / "docs" / "how-to" / "modules.md").read_text()
FILES = dict(re.findall(r"```python\n# (shop/\w+\.py)\n(.*?)```", GUIDE, re.DOTALL))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write the guide's package into a folder that is the working folder and on the path."""
    (tmp_path / "shop").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def test_a_worker_is_started_by_the_name_of_the_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file:{folder / 'queue.db'}"
    monkeypatch.setenv("HEADRACE_URL", url)
    with Client(url) as client:
        client.create_queue("images")
        args = {"path": "a.png", "owner": "ada"}
        client.enqueue("images", {"task": "shop.images.resize", "args": args}, id="one")

        ran = invoke("work", "shop", "--burst", session=CliSession(env={"HEADRACE_URL": url}))

        assert ran.code == 0, ran.err
        assert client.get_task("one").result == "resized a.png"
        assert [task.result for task in client.list_tasks("mail")] == ["sent to ada"]


@pytest.mark.usefixtures("folder")
def test_the_same_name_is_found_by_sync(headrace_service: MemoryService) -> None:
    ran = Cli(headrace_service)("sync", "shop", "--json")

    assert [step["queue"] for step in ran.json["steps"]] == ["mail", "images"]


def test_autodiscover_imports_every_module_of_a_package(
    folder: Path, headrace_service: MemoryService
) -> None:
    text = FILES["shop/app.py"]
    listed = ', include=["shop.mail", "shop.images"])'
    (folder / "shop/app.py").write_text(text.replace(listed, ')\napp.autodiscover("shop")'))
    (folder / "shop/_private.py").write_text("1 / 0\n")
    (folder / "shop/more").mkdir()
    (folder / "shop/more/__init__.py").write_text("")
    (folder / "shop/more/letters.py").write_text(FILES["shop/mail.py"])

    _, app = find_app("shop")
    Worker(app, client=headrace_service.client)

    assert sorted(app.tasks) == ["shop.images.resize", "shop.mail.send", "shop.more.letters.send"]


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        ("app = App()", "shop", "shop:app"),
        ("one = App()", "shop", "shop:one"),
        ("one = App(); two = App()", "shop:two", "shop:two"),
        ("from shop.app import app", "shop", "shop:app"),
    ],
)
def test_the_app_of_a_module_is_found(folder: Path, text: str, name: str, found: str) -> None:
    (folder / "shop/__init__.py").write_text(f"from headrace import App\n{text}\n")

    assert find_app(name)[0] == found


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        ("one = App(); two = App()", "shop", r"shop has several apps \(one, two\): name one"),
        ("", "shop:app", "it has no App: name its module that has one, as shop.app:app"),
        ("number = 5", "shop:number", "shop:number is no App but int"),
        ("", "shop.mail.nothing", "No module named"),
    ],
)
def test_what_is_missing_is_named(folder: Path, text: str, name: str, why: str) -> None:
    (folder / "shop/__init__.py").write_text(f"from headrace import App\n{text}\n")

    with pytest.raises((AppNotFound, ImportError), match=why):
        find_app(name)
    with pytest.raises(TypeError, match=r"include must be a list of modules, as \['shop.mail'\]"):
        App(include="shop.mail")
