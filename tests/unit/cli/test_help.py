"""Every command explains itself, and the guide knows them all."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headrace import __version__
from headrace.cli.commands import CliCommand, CliGroup
from headrace.cli.main import COMMANDS, main
from headrace.cli.session import CliSession, Exit
from tests.unit.cli.cli_runner import invoke

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "guide" / "cli.md").read_text()
OTHERS = "".join(
    (ROOT / "docs" / "guide" / name).read_text() for name in ("coming-from.md", "examples.md")
)


def walk(group: CliGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield " ".join((*path, name)), command
            if isinstance(command, CliGroup):
                yield from walk(command, (*path, name))


assert isinstance(main, CliGroup)
EVERY = dict(walk(main))
VERBS = {path: command for path, command in EVERY.items() if not isinstance(command, click.Group)}


def run(*args: str) -> str:
    ran = invoke(*args, session=CliSession(env={}))
    assert ran.code == 0, ran.err
    return ran.out


@pytest.mark.parametrize("path", EVERY)
def test_every_command_says_what_it_does_with_an_example(path: str) -> None:
    shown = run(*path.split(), "--help")

    command = EVERY[path]
    assert command.help
    assert "Example" in shown
    assert f"headrace {path.split(maxsplit=1)[0]}" in shown


@pytest.mark.parametrize("path", VERBS)
def test_every_option_says_what_it_does(path: str) -> None:
    for param in VERBS[path].params:
        if isinstance(param, click.Option):
            assert param.help, param.opts


def examples() -> list[tuple[str, ...]]:
    found = []
    for command in (main, *EVERY.values()):
        assert isinstance(command, CliCommand | CliGroup)
        found += [
            tuple(shlex.split(line.split("|")[0].split(" > ")[0], comments=True))
            for line in command.example.splitlines()
            if line.startswith("headrace ")
        ]
    found += [
        tuple(shlex.split(line.split("|")[0].split(" > ")[0], comments=True))
        for line in (
            *re.findall(r"^\$ (?:\w+=\S+ )?(headrace .*)$", GUIDE + OTHERS, re.MULTILINE),
            *re.findall(r"`(headrace work \w[\w.]*:app.*?)`", OTHERS),
        )
    ]
    return found


@pytest.mark.parametrize("words", sorted(set(examples())), ids=" ".join)
def test_every_example_is_one_that_is_understood(words: tuple[str, ...]) -> None:
    command: click.Command = main
    rest = list(words[1:])
    while rest and isinstance(command, CliGroup):
        with click.Context(command) as context:
            found = command.get_command(context, rest[0])
        if found is None:
            break
        command, rest = found, rest[1:]

    with command.make_context("headrace", rest, obj=CliSession(env={})) as context:
        assert context.params is not None


def test_what_the_first_help_says_is_what_each_command_says() -> None:
    for name, lazy in COMMANDS.items():
        assert EVERY[name].get_short_help_str(100) == lazy.help


def test_the_guide_has_every_command() -> None:
    for path in VERBS:
        assert f"`headrace {path}" in GUIDE, path


def test_the_guide_has_no_command_that_is_not_there() -> None:
    named = re.findall(r"^\| `headrace ([a-z ]+?)(?: [A-Z\[-].*?)?`", GUIDE, re.MULTILINE)

    assert len(named) > 30
    assert set(named) == set(VERBS)


def test_the_guide_has_the_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| `([A-Z_]+)` \|", GUIDE, re.MULTILINE)

    assert {(int(number), name) for number, name in rows} == {(one.value, one.name) for one in Exit}


def test_the_version_is_the_packages() -> None:
    assert run("--version") == f"headrace {__version__}\n"


def test_help_loads_nothing_that_help_does_not_need() -> None:
    script = (
        "import sys\nfrom headrace.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'rich', 'httpx2', 'msgspec', 'boto3', 'pydantic'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(ROOT / "functions")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stderr == "[]\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str) -> None:
    script = run("completion", shell)

    assert "_HEADRACE_COMPLETE" in script
    assert "headrace" in script
