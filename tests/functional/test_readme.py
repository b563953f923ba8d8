"""The console blocks of the README, and of the page about HTTP, print what these pages say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from infra.launch import launched
from tests.documented_lines import PAGES, ROOT

README = ROOT / "README.md"


def curl_page() -> Path:
    return next(page for page in PAGES if "```console\n$ curl " in page.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("page", [README, curl_page()], ids=lambda page: page.stem)
def test_the_commands_print_what_the_page_says(tmp_path: Path, page: Path) -> None:
    text = page.read_text()
    blocks = "".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL))
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", blocks, re.MULTILINE)
    assert len(steps) >= 4
    for name, code in re.findall(r"```python\n# (\S+)\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(code)

    with launched() as service:
        script = "\n".join(f"{command}\necho '--- {at}'" for at, (command, _) in enumerate(steps))
        shell = subprocess.run(
            ["bash", "-c", script],  # noqa: S607  the reader's own shell
            cwd=tmp_path,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HEADRACE_URL": service.file_url if page == README else service.url,
                "HEADRACE_KEY": service.admin_key,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )

    printed = re.split(r"^--- \d+\n", shell.stdout, flags=re.MULTILINE)
    assert shell.stderr == ""
    assert printed == [output for _, output in steps] + [""]
