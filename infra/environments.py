"""Set up environments: ``python3 infra/environments.py .venv-build node_modules``.

Needs the standard library only.  An environment has the packages that its lock file pins, and a
stamp of that file, so nothing is installed twice.  The Makefile calls this for ``*/.ready``.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
LAMBDA_PYTHON: Final = "3.13"
"""The version that the Lambda functions run on."""

DEV: Final = ".venv"
"""Its uv and its pip fill all environments."""


class Environment(NamedTuple):
    """A lock file of requirements/, and how to install it.

    ``editable`` adds Headrace itself.  ``python`` is a version that the environment must have.
    """

    lock: str
    holds: str
    editable: bool = False
    python: str = ""


ENVIRONMENTS: Final = {
    DEV: Environment("dev", "Python packages (a minute, once)", editable=True),
    ".venv-build": Environment("build", "AWS SAM CLI (a minute, once)", python=LAMBDA_PYTHON),
    ".venv-e2e": Environment("e2e", "an emulator of AWS (once)", python=LAMBDA_PYTHON),
    ".venv-tools": Environment("tools", "tools for nights and releases (a minute, once)"),
    ".venv-spark": Environment("spark", "PySpark and a Java (two minutes, once)", editable=True),
}


def main(names: list[str]) -> int:
    """Set up the environments and node_modules folders that are named."""
    try:
        for name in names:
            if name.endswith("node_modules"):
                set_up_node(ROOT / name)
            else:
                set_up(name)
    except (RuntimeError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def environment(name: str) -> Environment:
    """Return the environment of that name; also of ``.venv-3.12`` and ``.venv-spark-4.0``."""
    if name in ENVIRONMENTS:
        return ENVIRONMENTS[name]
    kind, _, version = name.rpartition("-")
    if kind == DEV:
        return ENVIRONMENTS[DEV]._replace(holds=f"Python {version} (once)", python=version)
    return ENVIRONMENTS[kind]._replace(lock=f"spark-{version}", holds=f"PySpark {version} (once)")


def set_up(name: str) -> Path:
    """Install what is missing in the environment, and return its Python.

    Raises RuntimeError if this machine has not the Python for it, and CalledProcessError.
    """
    if name != DEV:
        set_up(DEV)
    wanted = environment(name)
    folder, python = ROOT / name, ROOT / name / "bin" / "python"
    lock = ROOT / "requirements" / f"{wanted.lock}.txt"
    parts = [lock.read_bytes(), (ROOT / "pyproject.toml").read_bytes() if wanted.editable else b""]
    stamp = hashlib.sha256(b"\0".join(parts)).hexdigest()
    ready = folder / ".ready"
    with _locked(name):
        if ready.exists() and ready.read_text() == stamp and python.exists():
            return python
        print(f"Setting up {name}: {wanted.holds}", flush=True)
        _make(folder, wanted.python)
        if name == DEV:
            pip = [str(python), "-m", "pip", "install", "-qq", "--no-compile", "--require-hashes"]
            uv = str(ROOT / "requirements" / "uv.txt")
            _run(*pip, "--disable-pip-version-check", "--requirement", uv)
        # uv's cache would grow by three gigabytes with each PySpark, and use none of them again.
        cache = {"UV_NO_CACHE": "1"} if "spark" in name else {}
        _install(python, "--require-hashes", "--requirement", str(lock), **cache)
        if wanted.editable:
            _install(python, "--no-build-isolation", "--no-deps", "--editable", str(ROOT))
        if name == DEV:  # now, because `make build` copies these folders while others compile them
            _run(str(python), "-m", "compileall", "-q", "functions", "console", "infra")
        if name == ".venv-build":  # with it, each start of SAM compiles grammars for two seconds
            uv = str(ROOT / DEV / "bin" / "uv")
            _run(uv, "pip", "uninstall", "--quiet", "--python", str(python), "rfc3987-syntax")
        ready.write_text(stamp)
    return python


def set_up_node(folder: Path) -> None:
    """Install what package-lock.json beside *folder* pins.  Raises RuntimeError without npm."""
    stamp = hashlib.sha256((folder.parent / "package-lock.json").read_bytes()).hexdigest()
    ready = folder / ".ready"
    if ready.exists() and ready.read_text() == stamp:
        return
    if not shutil.which("npm"):
        if "peers" in folder.parts:  # bench-peers leaves BullMQ out, and prints that
            return
        message = f"{folder.relative_to(ROOT)} needs npm: install Node.js 18 or newer"
        raise RuntimeError(message)
    print(f"Setting up {folder.relative_to(ROOT)}", flush=True)
    _run("npm", "ci", "--loglevel=error", "--no-audit", "--no-fund", cwd=folder.parent)
    folder.mkdir(exist_ok=True)
    ready.write_text(stamp)


def interpreter(version: str) -> str | None:
    """Return a Python of that version on this machine, if there is one that can make venvs."""
    named = os.environ.get("BUILD_PYTHON") if version == LAMBDA_PYTHON else None
    test = "import sys, ensurepip; print('%d.%d' % sys.version_info[:2], sys.executable)"
    for program in filter(None, (named, sys.executable, f"python{version}")):
        for more in ({}, {"PYENV_VERSION": version}):
            with suppress(OSError, subprocess.CalledProcessError):
                answer = subprocess.run(
                    [program, "-c", test],
                    env=os.environ | more,
                    capture_output=True,
                    text=True,
                    check=True,
                )
                found, _, path = answer.stdout.strip().partition(" ")
                if found == version:
                    return path
    return None


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """Keep other processes from setting up the same environment."""
    lock = ROOT / "build" / f"{name}.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _make(folder: Path, version: str) -> None:
    """Make the virtual environment, again if it has another Python."""
    python = sys.executable
    if version:
        found = interpreter(version)
        if found is None:
            message = f"{folder.name} needs Python {version} with venv: install it"
            if version == LAMBDA_PYTHON:
                message += f", or name it: make BUILD_PYTHON=/path/to/python{version}"
            raise RuntimeError(message)
        python = found
        config = folder / "pyvenv.cfg"
        if config.exists() and f"version = {version}." not in config.read_text():
            shutil.rmtree(folder)
    if not (folder / "bin" / "python").exists():
        has_pip = folder.name in (DEV, ".venv-build")  # `sam build` calls the pip of the latter
        _run(python, "-m", "venv", *([] if has_pip else ["--without-pip"]), str(folder))


def _install(python: Path, *arguments: str, **environment: str) -> None:
    """Install by uv, in a tenth of pip's time, or by pip, where only pip knows the index."""
    command = [str(ROOT / DEV / "bin" / "uv"), "pip", "install", "--quiet", "--python", str(python)]
    done = subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pip = [str(ROOT / DEV / "bin" / "python"), "-m", "pip", "--python", str(python)]
        _run(*pip, "install", "-qq", "--no-compile", "--disable-pip-version-check", *arguments)


def _run(*command: str, cwd: Path = ROOT) -> None:
    subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
