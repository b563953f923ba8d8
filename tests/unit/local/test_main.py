"""The service in a terminal: what it takes besides its environment."""

import pytest

from headrace.local.__main__ import CANNOT_START, main


@pytest.mark.parametrize("arguments", [["--port", "8081"], ["8081"], ["--say"]])
def test_an_argument_that_it_does_not_know_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == CANNOT_START
    assert arguments[0] in capsys.readouterr().err
