"""Our side of the pages for people who come from another queue does what it says."""

import doctest
import re
import shlex
import sys
from pathlib import Path

import pytest

from headrace.cli.session import CliSession
from tests.unit.cli.cli_runner import invoke

GUIDE = Path(__file__).parents[2] / "docs" / "coming-from" / "index.md"
BLOCK = re.compile(r"^```(python|pycon|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"), "INSTANT"),
    (re.compile(r"tsk_\w{26}"), "ID"),
    (re.compile(r"\b[\w.-]+:\d+(?=\s)"), "WORKER"),
    (re.compile(r"\d+\.\d(?= min| s|\b)( min| s)?"), "NUMBER"),
    (re.compile(r"─+"), "─"),
    (re.compile(r" +"), " "),
)


@pytest.mark.slow
def test_our_side_does_what_the_pages_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in one folder: first the whole program, then what is typed."""
    blocks = BLOCK.findall(GUIDE.read_text())
    program = [code for language, code in blocks if language == "python"]
    assert all(code.startswith("# shop.py\n") for code in program)
    (tmp_path / "shop.py").write_text("\n\n".join(program))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    typed: dict[str, object] = {}

    try:
        for language, code in blocks:
            if language == "pycon":
                _type(code, typed)
            elif language == "console":
                for command, shown in STEP.findall(code):
                    assert _stable(_printed(command, monkeypatch)) == _stable(shown), command
    finally:
        sys.modules.pop("shop", None)


def _type(code: str, names: dict[str, object]) -> None:
    wrong: list[str] = []
    runner = doctest.DocTestRunner()
    test = doctest.DocTestParser().get_doctest(code, names, "coming-from.md", None, 0)
    runner.run(test, out=wrong.append, clear_globs=False)
    names.update(test.globs)
    assert "".join(wrong) == ""


def _printed(command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command writes: `headrace …` in this process, which starts far sooner."""
    first, *words = shlex.split(command)
    if first == "export":
        monkeypatch.setenv(*words[0].split("=", 1))
        return ""
    assert first == "headrace"
    ran = invoke(*words, session=CliSession())
    assert ran.code == 0, ran.err
    return ran.out if words[0] == "work" else ran.out + ran.err  # without the worker's log


def _stable(text: str) -> str:
    """What is the same whenever and wherever it is printed."""
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return "\n".join(line.rstrip() for line in text.splitlines())
