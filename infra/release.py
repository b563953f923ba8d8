"""Build the wheel and the sdist of a release into dist/, check them, and print the next steps.

``make release`` runs this.  Nothing leaves this machine.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from typing import Final

from infra import PROJECT_ROOT
from tests.wheel.installing import build

TOOLS: Final = PROJECT_ROOT / ".venv-tools" / "bin"
DIST: Final = PROJECT_ROOT / "dist"
BY_HAND: Final = """
{files}

By hand, when the gate and a night have passed on this commit:

  git tag --annotate v{version} --message "Headrace {version}"
  git push origin v{version}   (the workflow "release" then builds the same files)
  {tools}/twine upload dist/*
  then raise the version in pyproject.toml
"""


def main() -> int:
    """Return the exit status: 1 if something is not ready for a release."""
    version = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["project"]["version"]
    problems = unready(version)
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    sdist, wheel = build(DIST)
    for left in ("copy", "unpacked"):
        shutil.rmtree(DIST / left, ignore_errors=True)
    checks = (
        ["twine", "check", "--strict", str(sdist), str(wheel)],
        ["check-wheel-contents", str(wheel)],
        ["pyroma", "--min=8", str(sdist)],  # 10 with a home page and an address in pyproject.toml
    )
    problems += [f"{name} found a problem" for name, *words in checks if _fails(name, *words)]
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    files = "\n".join(
        f"{file.stat().st_size / 1e6:6.2f} MB  dist/{file.name}" for file in (wheel, sdist)
    )
    print(BY_HAND.format(files=files, version=version, tools=TOOLS.relative_to(PROJECT_ROOT)))
    return 0


def _fails(name: str, *words: str) -> bool:
    command = [str(TOOLS / name), *words]
    return subprocess.run(command, cwd=PROJECT_ROOT, check=False).returncode != 0


def unready(version: str) -> list[str]:
    """Return the reasons why the sources are not ready for a release of *version*."""
    problems = []
    heading = re.compile(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", re.MULTILINE)
    if not heading.search((PROJECT_ROOT / "CHANGELOG.md").read_text()):
        problems.append(f"CHANGELOG.md needs a heading like: ## [{version}] - 2026-12-01")
    changed = subprocess.run(
        ["git", "status", "--porcelain"],  # noqa: S607 (the git of this machine)
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    if changed.stdout:
        problems.append("there are changes that are not committed")
    return problems


if __name__ == "__main__":
    sys.exit(main())
