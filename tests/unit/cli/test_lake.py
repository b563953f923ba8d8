"""`headrace lake` says what it lacks; what its jobs do is tested where Spark is."""

from importlib.util import find_spec

import pytest

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
