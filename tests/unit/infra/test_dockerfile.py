"""The Dockerfile, which nobody builds here: what it copies is there, and what it promises it says.

`make build` has hadolint read it.
"""

import re

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
