"""The guides can be followed one after the other, in one folder and beside one service."""

import re
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDES = {
    path.name: path.read_text()
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    if path.parent.name != "coming-from"  # those repeat coming-from.md, beside other people's code
}
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INSTALLED = re.compile(r"\bpip install ((?:-\w |'[^']*'|\"[^\"]*\"|[\w./\[\],-]+)[^`\n&]*)")
CREATED = re.compile(r"^(?:\$ )?headrace queue create ([\w.-]+)", re.MULTILINE)
OURS = re.compile(r"headrace(\[[\w,]+\])?|path/to/headrace(\[[\w,]+\])?")


def shown(name: str) -> list[tuple[str, str]]:
    """The blocks of code of a guide, each with its language."""
    return FENCE.findall(GUIDES[name])


def test_no_two_guides_write_the_same_file_of_ones_own() -> None:
    writers = defaultdict(set)
    for name in GUIDES:
        for language, code in shown(name):
            if language == "python" and (file := re.match(r"# ([\w/]+\.py)\n", code)):
                writers[file[1]].add(name)

    assert "mail.py" in writers
    assert {file: names for file, names in writers.items() if len(names) > 1} == {}


def test_a_queue_is_created_once_on_the_service_of_ones_own_machine() -> None:
    of_a_deployment = {"deploy.md"}
    created = defaultdict(list)
    for name in GUIDES.keys() - of_a_deployment:
        for language, code in shown(name):
            if language in {"console", "sh", "bash"}:
                for queue in re.findall(
                    r"^\$? ?headrace queue create ([\w.-]+)", code, re.MULTILINE
                ):
                    created[queue].append(name)

    declared = set(re.findall(r'queue="([\w.-]+)"', GUIDES["README.md"]))
    assert "letters" in created
    assert {queue for queue, names in created.items() if len(names) > 1} == set()
    assert declared & created.keys() == set()


def test_packages_to_install_are_ours_a_path_or_ones_that_we_test_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [*project["dependency-groups"].values()]
    extras = [*project["project"]["optional-dependencies"].values()]
    tested = {re.split(r"[^\w-]", each)[0] for group in [*groups, *extras] for each in group}

    wanted = {
        (name, word.strip("'\""))
        for name, text in GUIDES.items()
        for words in INSTALLED.findall(text)
        for word in words.split()
        if not word.startswith("-")
    }

    assert any(word.startswith("headrace[") for _, word in wanted)
    assert {
        each for each in wanted if not OURS.fullmatch(each[1]) and each[1] not in tested
    } == set()
