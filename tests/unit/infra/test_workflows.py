"""The workflows of GitHub use pinned actions, and targets that the Makefile has."""

import re

from infra import PROJECT_ROOT

GITHUB = PROJECT_ROOT / ".github"
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+")


def test_every_action_is_pinned_by_a_commit_with_its_version() -> None:
    used = [
        action
        for file in GITHUB.glob("**/*.yml")
        for action in re.findall(r"uses: (?!\./)(.*)", file.read_text())
    ]

    assert len(used) > 5
    for action in used:
        assert PINNED.fullmatch(action), action


def test_every_command_of_the_workflows_is_a_target_or_the_gate() -> None:
    makefile = (PROJECT_ROOT / "Makefile").read_text()
    for file in (GITHUB / "workflows").glob("*.yml"):
        for target in re.findall(r"run: make ([\w-]+)", file.read_text()):
            assert f"\n{target}:" in makefile, f"{file.name}: {target}"
        for script in re.findall(r"(?:uses|run): (\.[\w./]+)", file.read_text()):
            assert (PROJECT_ROOT / script).exists(), f"{file.name}: {script}"
