"""`headrace lake` says what it lacks; what its jobs do is tested where Spark is."""

import re
from collections.abc import Sequence
from importlib.util import find_spec

import pytest

from headrace.cli import spark as commands
from headrace.cli.session import CliSession
from tests.unit.cli.cli_runner import Ran, invoke


def lake(*words: str) -> Ran:
    return invoke("lake", *words, session=CliSession(env={}))


@pytest.mark.parametrize("job", [("rollup",), ("proof",), ("compact",), ("replay", "x", "--sql=1")])
def test_without_pyspark_one_line_says_what_to_install(job: tuple[str, ...]) -> None:
    assert find_spec("pyspark") is None, "these tests run where only the SDK and the service are"

    ran = lake(*job)

    assert ran.code == 1
    assert ran.error.startswith("error: the lake's jobs need Python packages that are not here")
    assert ran.error.endswith("pip install 'headrace[spark]'")


@pytest.mark.parametrize("given", [(), ("--sql=SELECT 1", "--file=x.sql")])
def test_a_replay_needs_exactly_one_source_of_sql(given: tuple[str, ...]) -> None:
    ran = lake("replay", "again", *given)

    assert ran.code == 2
    assert "give exactly one of --sql and --file" in ran.error


@pytest.mark.parametrize(
    ("start", "passed"),
    [
        ("2026-11-21T08:00:00Z", r"--start=2026-11-21T08:00:00\+00:00"),
        ("+5m", r"--start=20\d\d-.*"),
    ],
)
def test_a_replay_may_begin_so_long_from_now(
    monkeypatch: pytest.MonkeyPatch, start: str, passed: str
) -> None:
    ran: list[Sequence[str]] = []

    def run(_session: CliSession, _lake: str | None, words: Sequence[str]) -> int:
        ran.append(words)
        return 0

    monkeypatch.setattr(commands, "run", run)

    lake("replay", "again", "--sql=1", f"--start={start}")

    (words,) = ran
    assert any(re.fullmatch(passed, word) for word in words)
    assert "no instant such as" in lake("replay", "again", "--sql=1", "--start=soon").error
