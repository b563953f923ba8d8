"""A name means one thing: no class name stands in two modules, save an answer's that says why."""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
CLASS: Final = re.compile(r"^ *class (\w+)", re.MULTILINE)
GIVEN: Final = {
    "Command": "Django finds a command by this name, and the API has it for what workers are told",
    "Retry": "a station returns it for a task where a task function raises it, as its guide says",
}


def homonyms(root: Path) -> dict[str, list[str]]:
    """The modules of each class name that stands in two of them, and no answer says why."""
    texts = {
        path: path.read_text(encoding="utf-8")
        for folder in ("functions", "console", "infra")
        for path in (root / folder).rglob("*.py")
    }
    paths = defaultdict(set)
    for path, text in texts.items():
        for name in CLASS.findall(text):
            paths[name].add(path)
    docstrings: dict[str, dict[str, str]] = defaultdict(dict)
    for path in {path for twice in paths.values() if len(twice) > 1 for path in twice}:
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for node in ast.walk(ast.parse(texts[path])):
            if isinstance(node, ast.ClassDef):
                name = module.removeprefix("functions.").removesuffix(".__init__")
                docstrings[node.name][name] = ast.get_docstring(node) or ""
    return {
        name: sorted(by_module)
        for name, by_module in docstrings.items()
        if len(by_module) > 1 and not explained(name, by_module)
    }


def explained(name: str, by_module: Mapping[str, str]) -> bool:
    """Tell whether all of these classes but one are answers, which say that they show that one."""
    shown = [module for module in by_module if not module.startswith("headrace.wire.")]
    return len(shown) == 1 and all(
        f"Shows ``{shown[0]}.{name}``" in docstring
        for module, docstring in by_module.items()
        if module != shown[0]
    )


def test_no_class_name_stands_in_two_modules_unless_one_shows_the_other() -> None:
    found = homonyms(ROOT)

    assert {name: found[name] for name in found.keys() - GIVEN.keys()} == {}
    assert found.keys() >= GIVEN.keys(), "given, but there are no two of it any more"


@pytest.mark.parametrize(
    ("folder", "docstring", "fine"),
    [
        ("functions/headrace/wire", "A task.\n\nShows ``headrace.domain.task.Task``.", True),
        ("functions/headrace/wire", "A task.", False),
        ("functions/headrace/wire", "Shows ``headrace.domain.queue.Task``.", False),
        ("functions/headrace/ops", "Shows ``headrace.domain.task.Task``.", False),
        ("console/chalicelib", "A task on a page.", False),
    ],
)
def test_only_an_answer_may_have_the_name_of_the_class_that_it_shows(
    tmp_path: Path, folder: str, docstring: str, *, fine: bool
) -> None:
    planted = {"functions/headrace/domain": "A task as stored.", folder: docstring}
    for place, text in planted.items():
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "task.py").write_text(f'class Task:\n    """{text}"""\n')

    assert (homonyms(tmp_path) == {}) == fine
