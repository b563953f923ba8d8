"""The client for threads is made of the one for event loops."""

from pathlib import Path

import pytest

from infra.unasync import MADE, SOURCE, made_of, main


def test_the_client_for_threads_is_what_the_other_makes() -> None:
    assert MADE.read_text() == made_of(SOURCE.read_text())


def test_a_client_for_threads_that_somebody_changed_fails_the_check_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "client.py"
    changed.write_text(MADE.read_text() + "\nCHANGED = True\n")

    assert main(["--check"], changed) == 1
    assert capsys.readouterr().err == ("client.py is not what aio.py makes: run `make unasync`\n")
    assert main([], changed) == 0
    assert main(["--check"], changed) == 0
