"""Runs a tutorial: its files, and its commands in one shell."""

import os
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
_FILE = r"```python\n# (\S+\.py)\n(.*?)```"
_COMMANDS = r"```console\n(.*?)```"


def run(name: str, folder: Path) -> None:
    """Run the tutorial *name* in *folder* from top to bottom; each command prints what it shows."""
    page = (FOLDER / f"{name}.md").read_text()
    shown: list[str] = []
    script = ["exec 2>&1", f"cd {folder}"]
    for path, text, commands in re.findall(f"{_FILE}|{_COMMANDS}", page, re.DOTALL):
        if path:
            script.append(f"mkdir -p {Path(path).parent}\ncat > {path} <<'END'\n{text}END")
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", commands, re.MULTILINE):
            script.append(f"{command}\necho '--- {len(shown)}'")
            shown.append(output)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HEADRACE_")}

    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],  # noqa: S607  the reader's own shell
        env={
            **kept,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{FOLDER.parents[1] / 'functions'}{os.pathsep}{folder}",
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    printed = re.split(r"^--- \d+\n", done.stdout, flags=re.MULTILINE)
    for step, (out, expected) in enumerate(zip(printed, [*shown, ""], strict=False)):
        assert out == expected, f"{name}, command {step} printed {out!r}"
    assert len(printed) == len(shown) + 1, done.stdout
