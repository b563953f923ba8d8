"""Runs a page: its files, and its commands in one shell."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.documented_lines import ROOT

_FILE = r"```(?:python|bash)\n# (\S+\.(?:py|sh))\n(.*?)```"
_COMMANDS = r"```console\n(.*?)```"


def run(page: Path, folder: Path, **environment: str) -> None:
    """Run *page* in *folder* from top to bottom; each command prints what the page shows."""
    shown: list[str] = []
    script = ["exec 2>&1", f"cd {folder}"]
    for path, text, commands in re.findall(f"{_FILE}|{_COMMANDS}", page.read_text(), re.DOTALL):
        if path:
            script.append(f"mkdir -p {Path(path).parent}\ncat > {path} <<'END'\n{text}END")
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", commands, re.MULTILINE):
            script.append(f"{command}\necho '--- {len(shown)}'")
            shown.append(output)
    assert shown
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HEADRACE_")}

    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],  # noqa: S607  the reader's own shell
        env={
            **kept,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT / 'functions'}{os.pathsep}{folder}",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    printed = re.split(r"^--- \d+\n", done.stdout, flags=re.MULTILINE)
    for step, (out, expected) in enumerate(zip(printed, [*shown, ""], strict=False)):
        assert out == expected, f"{page.stem}, command {step} printed {out!r}"
    assert len(printed) == len(shown) + 1, done.stdout
