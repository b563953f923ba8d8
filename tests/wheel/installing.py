"""Building sdist and wheel, and the packages of an environment with them."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra import PROJECT_ROOT

_SOURCES: Final = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
_FOLDERS: Final = ("functions", "console")
_LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", "*.egg-info")
_BUILD: Final = "import sys; from setuptools import build_meta as b; b.build_sdist(sys.argv[1])"
_LIST: Final = """
import importlib.metadata, pathlib
for one in importlib.metadata.distributions():
    files = [pathlib.Path(one.locate_file(file)) for file in one.files or ()]
    sizes = [file.stat().st_size for file in files if file.is_file() and file.suffix != ".pyc"]
    print(one.name, sum(sizes))
"""
_OF_PYTHON: Final = {"pip", "setuptools"}


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment outside of the checkout."""

    folder: Path

    @property
    def programs(self) -> Path:
        """Where `python` and `headrace` are."""
        return self.folder / "bin"

    @property
    def python(self) -> Path:
        return self.programs / "python"

    def install(self, wheel: Path, extras: str = "") -> None:
        """Install the wheel, each library in the version that is locked.

        With pip, as a person does, where the environment has one.  By `uv` it holds the same, in a
        tenth of the time; where that finds no index, since pip alone knows of one, by our pip.
        """
        locked = self.folder / "locked.txt"
        locked.write_text(versions((PROJECT_ROOT / "requirements" / "dev.txt").read_text()))
        words = ["--quiet", "--constraint", str(locked), f"{wheel}{extras}"]
        if (self.programs / "pip").is_file():
            run([str(self.python), "-m", "pip", "install", "--disable-pip-version-check", *words])
            return
        try:
            run(
                [sys.executable, "-m", "uv", "pip", "install", "--python", str(self.python), *words]
            )
        except RuntimeError:
            run([sys.executable, "-m", "pip", "--python", str(self.python), "install", *words])

    def packages(self) -> dict[str, int]:
        """Return the bytes of each installed package, except those that came with Python."""
        lines = run([str(self.python), "-c", _LIST]).splitlines()
        sizes = {name: int(size) for name, size in map(str.split, lines)}
        return {name: size for name, size in sizes.items() if name not in _OF_PYTHON}


def build(folder: Path) -> tuple[Path, Path]:
    """Build sdist and wheel into *folder*, the wheel out of the sdist; return both."""
    copy = folder / "copy"
    for name in _FOLDERS:
        shutil.copytree(PROJECT_ROOT / name, copy / name, ignore=_LEFT_OUT)
    for name in _SOURCES:
        shutil.copy(PROJECT_ROOT / name, copy)
    run([sys.executable, "-c", _BUILD, str(folder)], cwd=copy)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run([sys.executable, *words, "--wheel-dir", str(folder), str(unpacked)])
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def environment(folder: Path, *, with_pip: bool = True) -> Environment:
    """Make an empty one."""
    run([sys.executable, "-m", "venv", *([] if with_pip else ["--without-pip"]), str(folder)])
    return Environment(folder)


def versions(lock: str) -> str:
    """Return the versions of a requirements file, without its hashes: for a wheel of no index."""
    return "\n".join(re.findall(r"^[A-Za-z0-9._-]+==[^\s\\]+(?: ; [^\\\n]+)?", lock, re.MULTILINE))


def run(command: Sequence[str], *, cwd: Path | None = None) -> str:
    """Run a command away from the checkout's own modules; return what it prints.

    Raises RuntimeError with what it says when it fails.
    """
    done = subprocess.run(
        command, cwd=cwd or "/", env=bare(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def bare() -> dict[str, str]:
    """This process's environment without what leads to the checkout, or to a service."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HEADRACE_", "PYTHON"))
    }
