"""The example of docs/how-to/large-payloads.md, run as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "large-payloads.md"


EXAMPLES = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def ran(example: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", example],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(GUIDE.parents[2] / "functions")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_the_example_uploads_a_file_and_downloads_it(tmp_path: Path) -> None:
    done = ran(EXAMPLES[1], tmp_path)

    assert done.stdout.split() == ["600000", "there.bin"], done.stderr
    assert (tmp_path / "there.bin").read_bytes() == b"a film" * 100_000
    assert len(EXAMPLES) == 2


@pytest.mark.slow
def test_the_example_keeps_its_payload_beside_the_file(tmp_path: Path) -> None:
    done = ran(EXAMPLES[0], tmp_path)

    assert done.stdout.split() == ["xxxxxxxxxx", "100000"], done.stderr
    (kept,) = (one for one in (tmp_path / "tasks.db-payloads").rglob("*") if one.is_file())
    assert kept.stat().st_size > 100_000
    assert all(
        b"x" * 1000 not in file.read_bytes()
        for file in tmp_path.glob("tasks.db*")
        if file.is_file()
    )
