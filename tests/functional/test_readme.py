"""The README's console blocks do what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from infra.launch import launched

README = Path(__file__).parents[2] / "README.md"


def blocks() -> list[str]:
    return re.findall(r"```console\n(.*?)```", README.read_text(), flags=re.DOTALL)


@pytest.mark.slow
def test_the_commands_print_what_the_readme_says(tmp_path: Path) -> None:
    """One shell runs them in order: over a file, and curl with a service on the same file."""
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(blocks()), flags=re.MULTILINE)
    assert len(steps) > 5
    for name, text in re.findall(
        r"```python\n# (\S+)\n(.*?)```", README.read_text(), flags=re.DOTALL
    ):
        (tmp_path / name).write_text(text)

    with launched() as service:
        script = "\n".join(
            f"{command.replace('curl', 'export HEADRACE_URL=$SERVICE; curl')}\necho '--- {place}'"
            for place, (command, _) in enumerate(steps)
        )
        shell = subprocess.run(
            ["bash", "-c", script],  # noqa: S607  the reader's own shell
            cwd=tmp_path,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HEADRACE_URL": service.file_url,
                "HEADRACE_KEY": service.admin_key,
                "SERVICE": service.url,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )

    printed = re.split(r"^--- \d+\n", shell.stdout, flags=re.MULTILINE)
    assert shell.stderr == ""
    assert printed == [output for _, output in steps] + [""]
