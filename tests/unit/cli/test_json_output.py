"""Every line of ``--json`` is valid JSON with the exact text of results, and no task ends a list.

The results are reduced from public bug reports: numbers that lost digits or became ``Infinity``, a
number of 5,000 digits, half of a surrogate pair, many levels.
"""

import json
from typing import Final

import pytest

from headrace.client.sending import Report
from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli

LEVELS: Final = 200
DEEP: Final = "[" * LEVELS + "]" * LEVELS
RESULTS: Final = (
    "12345678901234567890.123456789",
    "1.10",
    "1e400",
    '{"a":0.1000000000000000055511151231257827}',
    "9" * 5000,
    r'{"foo":"bar \ud83d baz"}',
    r'{"foo":"\\ud83d","pair":"\ud83d\ude80"}',
    DEEP,
)


class Verbatim:
    """A codec for values that are JSON text already."""

    private = False

    def encode(self, value: object) -> bytes:
        return str(value).encode()

    def decode(self, text: bytes) -> str:
        return text.decode()


@pytest.fixture
def cli(headrace_service: MemoryService) -> Cli:
    made = Cli(headrace_service)
    made("queue", "create", "mail")
    client = headrace_service.connect(codec=Verbatim())
    for number, text in enumerate(RESULTS):
        client.enqueue("mail", text, id=f"t{number}", tags={"n": str(number)})
    headrace_service.clock.forward(0.001)
    for task in client.dequeue("mail", batch_size=25).tasks:
        report = Report(
            task_id=task.id, lease_id=task.lease.id, status="SUCCEEDED", result=task.payload
        )
        [answer] = client.report("mail", [report])
        assert answer.outcome == "OK"
    return made


def without_space(text: str) -> str:
    return "".join(text.split())


def refused(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def check_json(text: str) -> None:
    """Raise an error for what is not JSON by its grammar: NaN and Infinity are not."""
    json.loads(text, parse_int=str, parse_float=str, parse_constant=refused)


def test_what_is_shown_of_one_task_is_exact(cli: Cli) -> None:
    for number, text in enumerate(RESULTS):
        for verb in (("task", "show"), ("task", "wait")):
            shown = cli(*verb, f"t{number}", "--json")
            assert shown.code == 0
            check_json(shown.out)
            assert f'"result":{without_space(text)},' in without_space(shown.out)


@pytest.mark.parametrize("options", [(), ("--payload",)])
def test_a_list_has_a_line_for_each_task_with_its_exact_result(
    cli: Cli, options: tuple[str, ...]
) -> None:
    listed = cli("task", "list", "mail", "--json", *options)

    lines = listed.out.splitlines()
    assert listed.code == 0
    assert len(lines) == len(RESULTS)
    for text in RESULTS:
        [line] = [line for line in lines if f'"result":{text},' in line]
        check_json(line)
        assert (f'"payload":{text},' in line) == bool(options)
