"""Every command explains itself."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from headrace.cli.commands import CliCommand, CliGroup
from headrace.cli.main import main
from headrace.cli.session import CliSession, Exit
from tests.unit.cli.cli_runner import invoke

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "reference" / "cli.md").read_text()


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


def examples() -> set[tuple[str, ...]]:
    lines = [
        line
        for command in (main, *EVERY.values())
        if isinstance(command, CliCommand | CliGroup)
        for line in command.example.splitlines()
    ]
    return {
        tuple(shlex.split(line.split("|")[0].split(" > ")[0], comments=True))
        for line in lines
        if line.startswith("headrace ")
    }


def test_the_guide_has_the_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| `([A-Z_]+)` \|", GUIDE, re.MULTILINE)

    assert {(int(number), name) for number, name in rows} == {(one.value, one.name) for one in Exit}


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


def test_every_command_and_option_is_explained_with_an_example() -> None:
    for path, command in EVERY.items():
        shown = run(*path.split(), "--help")

        assert command.help, path
        assert "Example" in shown, path
        assert f"headrace {path.split(maxsplit=1)[0]}" in shown, path
        for param in command.params:
            assert not isinstance(param, click.Option) or param.help, (path, param.opts)


def test_every_example_of_the_help_is_understood() -> None:
    assert len(examples()) > 50
    for words in examples():
        command: click.Command = main
        rest = list(words[1:])
        while rest and isinstance(command, CliGroup):
            with click.Context(command) as context:
                found = command.get_command(context, rest[0])
            if found is None:
                break
            command, rest = found, rest[1:]
        with command.make_context("headrace", rest, obj=CliSession(env={})) as context:
            assert context.params is not None, words
