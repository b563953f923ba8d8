"""The Dockerfile, which nobody builds here: what it copies is there, and what it promises it says.

`make build` has hadolint read it.
"""

import json
import re
import shlex

from click.testing import CliRunner

from headrace.cli.run import run_command
from headrace.local.service import HEALTH_PATH
from infra import PROJECT_ROOT

TEXT = (PROJECT_ROOT / "Dockerfile").read_text().replace("\\\n", " ")
STEPS = [line.split(None, 1) for line in TEXT.splitlines() if line and not line.startswith("#")]


def steps(word: str) -> list[str]:
    return [rest for first, rest in STEPS if first == word]


def test_what_it_copies_is_in_the_checkout_and_reaches_the_builder() -> None:
    taken = (PROJECT_ROOT / ".dockerignore").read_text().splitlines()
    copied = [name for step in steps("COPY") if "--from" not in step for name in step.split()[:-1]]

    assert len(copied) > 5
    for name in copied:
        assert (PROJECT_ROOT / name).exists()
        assert f"!{name}" in taken


def test_every_package_from_elsewhere_is_pinned_by_its_hash() -> None:
    installs = [step for step in steps("RUN") if "pip install" in step]

    assert len(installs) == 2
    assert all("--require-hashes" in step or "--no-deps" in step for step in installs)


def test_it_runs_as_nobody_in_particular() -> None:
    (user,) = steps("USER")

    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert [first for first, _ in STEPS].index("USER") < [first for first, _ in STEPS].index("CMD")


def test_it_asks_the_service_whether_it_is_well() -> None:
    (check,) = steps("HEALTHCHECK")

    assert f"http://127.0.0.1:8080{HEALTH_PATH}'" in check


def test_its_command_is_one_that_there_is() -> None:
    (command,) = steps("CMD")
    words = json.loads(command)
    known = CliRunner().invoke(run_command, ["--help"]).output

    assert words[:2] == ["headrace", "run"]
    assert words[2:] == shlex.split("--host 0.0.0.0 --port 8080")
    assert all(word in known for word in words[2:] if word.startswith("--"))
