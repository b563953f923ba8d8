"""`python -m infra.spark`: build what Spark runs in AWS, and put it where the stack looks for it.

    make package-spark
    make package-spark ARGS='--lake s3://bucket'

The address of the lake is the stack's output LakeAddress.  Exit status: 0 done, 1 it failed.

`environment-<processor>.tar.gz` has all that `headrace.spark` needs, and Iceberg's tables, without
PySpark, which EMR Serverless has; a job runs its `bin/python`.  Built twice from the same files, it
is the same byte for byte.
"""

import argparse
import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final

from headrace.domain.errors import HeadraceError
from headrace.store.lake import lake_at
from infra import PROJECT_ROOT

TARGET: Final = PROJECT_ROOT / "build" / "spark"
CODE: Final = "code"
"""Where in the lake infra/spark.yaml looks for it."""

HERE: Final = Path(__file__).parent
REQUIREMENTS: Final = HERE / "requirements.txt"
SCRIPTS: Final = ("lake.py", "station.py")
PROCESSORS: Final = {"arm64": "aarch64", "x86_64": "x86_64"}
EMR_PYTHON: Final = "3.11"
SERVICES: Final = frozenset({"dynamodb", "glue", "s3", "secretsmanager", "sts"})
"""Of botocore, which knows hundreds; the others are most of its size."""

_FUNCTIONS: Final = PROJECT_ROOT / "functions"
_NOT_OURS: Final = frozenset({"cli", "entries", "http", "local", "testing"})  # not for Spark
_OPTIONS: Final = frozenset({"cli/__init__.py", "cli/jobs.py", "cli/params.py"})  # save these
_LEFT_OUT: Final = frozenset({"__pycache__", "tests", "include"})
_PYTHON: Final = f"""#!/bin/sh
# The Python of the runtime, with the packages beside this file before its own.
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$here/lib${{PYTHONPATH:+:$PYTHONPATH}}"
exec "${{HEADRACE_PYTHON:-python{EMR_PYTHON}}}" "$@"
"""


def main() -> int:
    """Build, and put; return the exit status."""
    parser = argparse.ArgumentParser(prog="make package-spark ARGS=…", description=__doc__)
    parser.add_argument("--lake", help="put it there, under code/; such as s3://bucket")
    parser.add_argument("--processor", choices=[*PROCESSORS], default="arm64", help="of EMR")
    parser.add_argument("--target", type=Path, default=TARGET, help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        files = build(options.target, processor=options.processor)
        for file in files:
            print(f"{file.stat().st_size / 1e6:8.1f} MB  {file.relative_to(PROJECT_ROOT)}")
        if options.lake:
            lake = lake_at(options.lake)
            for file in files:
                lake.put(f"{CODE}/{file.name}", file.read_bytes())
            print(f"All of it is at {options.lake.rstrip('/')}/{CODE}/ now.")
    except subprocess.CalledProcessError:
        print("error: pip could not fetch what infra/spark/requirements.txt names", file=sys.stderr)
        return 1
    except (HeadraceError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def build(target: Path, *, processor: str = "arm64") -> list[Path]:
    """Build everything into *target*; return the files."""
    target.mkdir(parents=True, exist_ok=True)
    libraries = fetched(target / "fetched", processor)
    packed = environment(target / f"environment-{processor}.tar.gz", libraries)
    return [packed, *(Path(shutil.copy(HERE / name, target / name)) for name in SCRIPTS)]


def fetched(cache: Path, processor: str) -> Path:
    """Return a folder with the pinned packages as *processor* needs them; kept while they stay."""
    pinned = REQUIREMENTS.read_bytes() + processor.encode() + EMR_PYTHON.encode()
    folder = cache / blake2b(pinned, digest_size=6).hexdigest()
    if not folder.exists():
        new = folder.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        where = ["--requirement", str(REQUIREMENTS), "--target", str(new), "--no-compile"]
        _pip("install", *where, *_built_for(PROCESSORS[processor], EMR_PYTHON))
        new.rename(folder)
    return folder


def ours() -> Iterator[tuple[str, Path]]:
    """Yield the files of `headrace` that a job may import, by their names in an archive."""
    for name, path in files_of(_FUNCTIONS / "headrace"):
        if name.partition("/")[0] not in _NOT_OURS or name in _OPTIONS:
            yield f"headrace/{name}", path


def files_of(folder: Path, prefix: str = "") -> Iterator[tuple[str, Path]]:
    """Yield the files below *folder*, by name, without what no job reads."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and not _LEFT_OUT.intersection(parts):
            name = prefix + "/".join(parts)
            if _served(name):
                yield name, path


def environment(target: Path, libraries: Path, *, level: int = 6) -> Path:
    """Write `bin/python` and `lib/` with all packages to a tar file, packed at gzip's *level*."""
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0, compresslevel=level) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        _add(archive, "bin/python", _PYTHON.encode(), 0o755)
        for name, path in (*ours(), *files_of(libraries)):
            _add(archive, f"lib/{name}", path.read_bytes(), 0o644)
    return target


def _served(name: str) -> bool:
    """Return False for a file of botocore about a service that is not used here."""
    _, found, rest = name.rpartition("botocore/data/")
    service, below, _ = rest.partition("/")
    return not (found and below) or service in SERVICES


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), mode, 0
    archive.addfile(entry, io.BytesIO(content))


def _built_for(machine: str, python: str) -> list[str]:
    # The newest first: EMR runs on Amazon Linux 2023, with glibc 2.34.
    systems = ("manylinux_2_34", "manylinux_2_28", "manylinux2014")
    platforms = [f"--platform={system}_{machine}" for system in systems]
    locked = ["--only-binary=:all:", "--no-deps", "--require-hashes"]
    return [*platforms, f"--python-version={python}", "--implementation=cp", *locked]


def _pip(verb: str, *words: str) -> None:
    command = [sys.executable, "-m", "pip", verb, "-qq", "--disable-pip-version-check", *words]
    # Without this folder's packages, which pip would take for installed.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, check=True, env=env)


if __name__ == "__main__":
    sys.exit(main())
