"""`make audit` looks up every package that is pinned."""

import re
import subprocess
from pathlib import Path

from infra import PROJECT_ROOT


def found(*patterns: str) -> set[Path]:
    paths = (path for pattern in patterns for path in PROJECT_ROOT.glob(pattern))
    names = {path.relative_to(PROJECT_ROOT) for path in paths}
    return {name for name in names if not re.search(r"(^|/)(\.|node_modules/)", name.as_posix())}


def test_each_lock_file_of_python_and_npm_is_looked_up() -> None:
    plan = subprocess.run(
        ["make", "--dry-run", "audit"],  # noqa: S607  make as it is on the path
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (lookup,) = re.findall(r"bin/pip-audit .*?\|\| failed", plan, re.DOTALL)
    (folders,) = re.findall(r"for folder in (.*?);", plan)

    python = {Path(name) for name in re.findall(r"--requirement (\S+)", lookup)}
    npm = {Path(folder) / "package-lock.json" for folder in folders.split()}
    assert python == found("requirements/*.txt", "*/requirements.txt", "infra/*/requirements.txt")
    assert npm == found(*(f"{'*/' * depth}package-lock.json" for depth in range(4)))
