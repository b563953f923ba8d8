"""The worker in a shell that docs/how-to/shell-worker.md shows, against the real local service."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.launch import launched

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "how-to" / "shell-worker.md").read_text()
HEADRACE = shlex.join([sys.executable, "-P", "-m", "headrace.cli.main"])
SEND = "#!/bin/sh\ngrep -q @ || { echo 'no such address' >&2; exit 1; }\n"


def block(kind: str) -> str:
    (found,) = re.findall(rf"```{kind}\n(.*?)```", GUIDE, flags=re.DOTALL)
    return str(found)


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def undated(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "INSTANT", text)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_guides_worker_prints_what_it_says(tmp_path: Path) -> None:
    """The commands of the session run in one shell; each prints what stands below it."""
    executable(tmp_path / "send", SEND)
    executable(tmp_path / "headrace", f'#!/bin/sh\nexec {HEADRACE} "$@"\n')
    (tmp_path / "worker.sh").write_text(
        block("bash").replace('"wait_seconds": 5', '"wait_seconds": 1')
    )
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block("text"), flags=re.MULTILINE)
    script = "\n".join(f"{command}\necho '--- {place}'" for place, (command, _) in enumerate(steps))
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HEADRACE_")}

    with launched() as service:
        shell = subprocess.run(
            ["bash", "-c", f"exec 2>&1\n{script}"],  # noqa: S607
            env={
                **kept,
                "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT / "functions"),
                "HEADRACE_URL": service.url,
                "HEADRACE_KEY": service.admin_key,
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )

    printed = re.split(r"^--- \d+\n", undated(shell.stdout), flags=re.MULTILINE)
    assert len(steps) > 3
    assert printed == [undated(output) for _, output in steps] + [""]
