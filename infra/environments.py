"""Set up environments: ``python3 infra/environments.py .venv-build node_modules``.

Needs the standard library only.  ``.venv-build`` has the packages that requirements/build.txt pins,
and so on; ``.venv`` and ``.venv-3.12`` have those of dev.txt.  A stamp of the lock file in each
says whether something is left to install.  The Makefile calls this for ``*/.ready``.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LAMBDA_PYTHON: Final = "3.13"
"""The version that the Lambda functions run on."""

DEV: Final = ".venv"
"""Its uv and its pip fill all environments."""

_UV: Final = ROOT / DEV / "bin" / "uv"


def main(names: list[str]) -> int:
    """Set up the environments and node_modules folders that are named."""
    try:
        for name in names:
            set_up_node(ROOT / name) if name.endswith("node_modules") else set_up(name)
    except subprocess.CalledProcessError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def lock_of(name: str) -> str:
    """Return the name of the environment's lock file in requirements/."""
    return "dev" if name == DEV or name.startswith(f"{DEV}-3.") else name.removeprefix(f"{DEV}-")


def set_up(name: str) -> Path:
    """Install what is missing in the environment, and return its Python.

    Raises CalledProcessError.
    """
    if name != DEV:
        set_up(DEV)
    python = ROOT / name / "bin" / "python"
    lock = ROOT / "requirements" / f"{lock_of(name)}.txt"
    has_headrace = lock_of(name).startswith(("dev", "spark"))
    inputs = [lock, ROOT / "pyproject.toml"] if has_headrace else [lock]
    if _is_current(ROOT / name, inputs) and python.exists():
        return python
    print(f"Setting up {name} (a minute or two, once)", flush=True)
    if name == DEV:
        _run(sys.executable, "-m", "venv", str(ROOT / DEV))
        pip = [str(python), "-m", "pip", "install", "-qq", "--no-compile", "--require-hashes"]
        uv_lock = ROOT / "requirements" / "uv.txt"
        _run(*pip, "--disable-pip-version-check", "--requirement", str(uv_lock))
    elif not python.exists():
        _make(name)
    # uv's cache would grow by three gigabytes with each PySpark, and use none of them again.
    cache = ["--no-cache-dir"] if "spark" in name else []
    _install(python, "--require-hashes", "--requirement", str(lock), *cache)
    if has_headrace:
        _install(python, "--no-build-isolation", "--no-deps", "--editable", str(ROOT))
    if name == DEV:  # now, because `make build` copies these folders while others compile them
        _run(str(python), "-m", "compileall", "-q", "functions", "console", "infra")
    if name == ".venv-build":  # with it, each start of SAM compiles grammars for two seconds
        _run(str(_UV), *f"pip uninstall --quiet --python {python} rfc3987-syntax".split())
    _stamp(ROOT / name, inputs)
    return python


def set_up_node(folder: Path) -> None:
    """Install what package-lock.json beside *folder* pins.  Exit without npm."""
    lock = [folder.parent / "package-lock.json"]
    if _is_current(folder, lock):
        return
    if not shutil.which("npm"):
        if "peers" in folder.parts:  # bench-peers leaves BullMQ out, and prints that
            return
        sys.exit(f"{folder.relative_to(ROOT)} needs npm: install Node.js 18 or newer")
    print(f"Setting up {folder.relative_to(ROOT)}", flush=True)
    _run("npm", "ci", "--loglevel=error", "--no-audit", "--no-fund", cwd=folder.parent)
    _stamp(folder, lock)


def _is_current(folder: Path, inputs: list[Path]) -> bool:
    ready = folder / ".ready"
    return ready.exists() and ready.read_text() == _digest(inputs)


def _stamp(folder: Path, inputs: list[Path]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / ".ready").write_text(_digest(inputs))


def _digest(inputs: list[Path]) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in inputs)).hexdigest()


def _make(name: str) -> None:
    """Make the environment, with the Python that its name or Lambda asks for."""
    python = sys.executable
    is_lambda = name in (".venv-build", ".venv-e2e")
    if is_lambda or name.startswith(f"{DEV}-3."):
        version = LAMBDA_PYTHON if is_lambda else name.removeprefix(f"{DEV}-")
        find = [str(_UV), "python", "find", version]
        environment = os.environ | {"PYENV_VERSION": version}
        found = subprocess.run(find, env=environment, capture_output=True, text=True, check=False)
        named = os.environ.get("BUILD_PYTHON", "") if is_lambda else ""
        python = named or found.stdout.strip()
        if not python:
            hint = ", or name it: make BUILD_PYTHON=/path/to/python3" if is_lambda else ""
            sys.exit(f"{name} needs Python {version} with venv: install it{hint}")
    # `sam build` calls the pip of its environment.
    words = [] if name == ".venv-build" else ["--without-pip"]
    _run(python, "-m", "venv", *words, str(ROOT / name))


def _install(python: Path, *arguments: str) -> None:
    """Install by uv, in a tenth of pip's time, or by pip, where only pip knows the index."""
    uv = [str(_UV), "pip", "install", "--quiet", "--python", str(python), *arguments]
    if subprocess.run(uv, cwd=ROOT, capture_output=True, check=False).returncode:
        pip = [str(ROOT / DEV / "bin" / "python"), "-m", "pip", "--python", str(python)]
        _run(*pip, "install", "-qq", "--no-compile", "--disable-pip-version-check", *arguments)


def _run(*command: str, cwd: Path = ROOT) -> None:
    subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
