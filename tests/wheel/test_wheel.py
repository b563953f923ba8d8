"""From nothing to the first task, with the wheel alone: no checkout, no Node, no Java.

`make test-wheel` runs this; a person's steps in order, each in the environment of the one before.
"""

import os
import re
import shutil
import signal
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from infra import PROJECT_ROOT
from tests.wheel.installing import Environment, bare, build, environment

README = PROJECT_ROOT / "README.md"
MOST_BYTES = 25_000_000
SHELL = ("bash", "cat", "env", "grep", "sed", "sh", "tail", "uname")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Give sdist and wheel."""
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def alone(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Give an environment with what `pip install headrace` brings."""
    made = environment(tmp_path_factory.mktemp("alone") / "venv", with_pip=False)
    made.install(built[1])
    return made


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of a person's own, and an environment; nothing else is on the PATH but a shell."""

    folder: Path
    installed: Environment

    def env(self, **more: str) -> dict[str, str]:
        path = f"{self.installed.programs}{os.pathsep}{self.folder / 'shell'}"
        return {**bare(), "PATH": path, "HOME": str(self.folder), **more}

    def run(self, command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],  # noqa: S607  the one in `shell`
            cwd=self.folder,
            env=self.env(**more),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def place(folder: Path, installed: Environment) -> Place:
    (folder / "shell").mkdir(parents=True)
    for name in SHELL:
        (folder / "shell" / name).symlink_to(shutil.which(name) or "/bin/false")
    (folder / "mail.py").write_text(first_task())
    return Place(folder, installed)


def first_task() -> str:
    (found,) = re.findall(r"```python\n(# mail.py\n.*?)```", README.read_text(), re.DOTALL)
    return str(found)


def first_steps() -> list[tuple[str, str]]:
    """Return the README's first commands, each with what it prints."""
    block = re.findall(r"```console\n(.*?)```", README.read_text(), re.DOTALL)[0]
    return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)


# ------------------------------------------------------------------------------- what is in it


def test_sdist_and_wheel_hold_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    with tarfile.open(sdist) as packed:
        sources = packed.getnames()

    assert {name.partition("/")[0] for name in names} == {
        *("headrace", "headrace-0.1.0.dist-info", "pyspark_headrace"),
        *(f"pyspark_headrace_{one}" for one in ("enqueue", "export", "table")),
    }
    for needed in (
        "headrace/py.typed",
        "headrace/local/tables.json",
        "headrace/console/chalicelib/templates/layout.html",
        "headrace/console/chalicelib/static/console.css",
        "headrace/spark/log4j2.properties",
    ):
        assert needed in names
    assert any(name.endswith("/console/chalicelib/templates/layout.html") for name in sources)


def test_the_package_alone_is_small(alone: Environment) -> None:
    packages = alone.packages()

    assert sum(packages.values()) <= MOST_BYTES
    assert not packages.keys() & {
        "aws-lambda-powertools",
        "boto3",
        "botocore",
        "chalice",
        "uvicorn",
    }


# ------------------------------------------------------------------------- what it does alone


def test_the_sdk_alone_has_client_and_worker(alone: Environment, tmp_path: Path) -> None:
    ran = place(tmp_path / "own", alone).run(
        'python -c "import mail; from headrace import AsyncClient, Client, Worker; print(Worker)"'
    )

    assert (ran.stdout, ran.stderr) == ("<class 'headrace.client.worker.worker.Worker'>\n", "")


def test_what_an_extra_is_needed_for_says_which(alone: Environment, tmp_path: Path) -> None:
    own = place(tmp_path / "own", alone)

    service = own.run("headrace run")
    tables = own.run("headrace queue list", HEADRACE_URL="dynamodb://eu-west-1/headrace")

    assert service.stderr.endswith("pip install 'headrace[server]'\n")
    assert tables.stderr.endswith("pip install 'headrace[dynamodb]'\n")


def test_the_first_task_over_a_file_needs_no_extra(alone: Environment, tmp_path: Path) -> None:
    own = place(tmp_path / "own", alone)

    for command, printed in first_steps():
        ran = own.run(command, HEADRACE_URL="file:headrace.db")
        assert (ran.stdout, ran.stderr) == (printed, "")
    assert (own.folder / "headrace.db").is_file()


# ------------------------------------------------------------------------------- the service


def test_from_nothing_to_the_first_task_and_the_console(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    made = environment(tmp_path / "venv")
    made.install(built[1], "[server]")
    own = place(tmp_path / "own", made)
    assert shutil.which("node", path=own.env()["PATH"]) is None
    assert shutil.which("java", path=own.env()["PATH"]) is None

    assert "mail" in first_visit(own)


def first_visit(own: Place) -> str:
    """Create a queue, and return the first page of the console."""
    with serving(own) as (url, key):
        created = own.run("headrace queue create mail", HEADRACE_URL=url, HEADRACE_KEY=key)
        assert created.returncode == 0, created.stderr
        return signed_in(url, key)


@contextmanager
def serving(own: Place) -> Iterator[tuple[str, str]]:
    """Run `headrace run` for the length of a with block; give address and key."""
    with ExitStack() as undo:
        service = undo.enter_context(
            subprocess.Popen(
                [own.installed.programs / "headrace", "run", "--port", "0", "--data", "data"],
                cwd=own.folder,
                env=own.env(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        undo.callback(service.kill)
        assert service.stdout is not None
        lines: list[str] = []
        for line in service.stdout:
            lines.append(line)
            if "Ctrl-C stops it." in line:
                break
        text = "".join(lines)
        exported = dict(re.findall(r"export (\w+)=(\S+)", text))
        assert exported, text
        yield exported["HEADRACE_URL"], (own.folder / "data" / "admin.key").read_text().strip()
        service.send_signal(signal.SIGTERM)
        assert service.wait(10) == 0
    assert (own.folder / "data").is_dir()


def signed_in(url: str, key: str) -> str:
    """Sign in to the console as a browser does; return the first page."""
    with httpx2.Client(base_url=url, timeout=10) as browser:
        door = browser.get("/console/sign-in").text
        hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', door))
        headers = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
        entered = browser.post("/console/sign-in", data={**hidden, "key": key}, headers=headers)
        assert (entered.status_code, entered.headers["location"]) == (303, "/console")
        return browser.get("/console").raise_for_status().text
