"""`headrace station` and `lake` where Spark is not installed."""

from importlib.util import find_spec

import pytest

from headrace.cli.session import CliSession
from headrace.cli.spark import show
from tests.unit.cli.cli_runner import invoke

BATCH = (
    '{"batch": 1, "tasks": 1900, "seconds": 2.0, "tasks_per_second": 950.0, "moved": 1897,'
    ' "dead": 3, "reasons": {"dead": ["ValueError: 13\\u001b[2J"]}}\n'
)
END = '{"ended": "drained", "batches": 1, "tasks": 1900, "moved": 1897, "dead": 3}\n'


@pytest.mark.parametrize(
    "words",
    [("station", "start", "air:cleaning"), ("lake", "rollup"), ("lake", "replay", "x", "--sql=1")],
)
def test_without_pyspark_one_line_says_what_to_install(words: tuple[str, ...]) -> None:
    assert find_spec("pyspark") is None, "these tests run where only the SDK and the service are"

    ran = invoke(*words, session=CliSession(env={}))

    assert ran.code == 1
    assert "need Python packages that are not installed (pyspark" in ran.error
    assert ran.error.endswith("pip install 'headrace[spark]'")


def test_a_person_sees_each_batch_and_the_end_and_no_terminal_obeys_a_task(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(CliSession(env={}), [BATCH, END])

    shown = capsys.readouterr()
    assert shown.err == (
        "batch 1: 1,897 moved, 3 dead in 2.0 s (950 tasks/s)\n  dead: ValueError: 13\\x1b[2J\n"
    )
    assert "ended" in shown.out
    assert "1,897" in shown.out
