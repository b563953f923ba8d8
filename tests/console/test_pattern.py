"""The pattern page stays whole: whatever the pages are drawn with is on it."""

import re
from pathlib import Path
from typing import Final

from console.chalicelib.render import TEMPLATES
from console.chalicelib.views.static import FOLDER
from tests.console.conftest import Browser, Shown
from tests.console.pattern import page as pattern
from tests.console.test_pages import inline, nameless

_MACRO: Final = re.compile(r"{%-? macro (\w+)\(.*?{%-? endmacro", re.DOTALL)
_COMMENTS: Final = re.compile(r"/\*.*?\*/|{#.*?#}", re.DOTALL)
_CLASS: Final = re.compile(r"\.([a-z][\w-]*)")
_PRELUDE: Final = re.compile(r"[^{};]+(?={)")


def template(path: Path) -> str:
    return _COMMENTS.sub("", path.read_text())


def styled() -> set[str]:
    """Every class that the stylesheet knows."""
    style = template(FOLDER / "console.css")
    return {name for prelude in _PRELUDE.findall(style) for name in _CLASS.findall(prelude)}


def shown() -> Shown:
    return Shown(200, {}, {}, pattern.html(), pattern.PATH)


def test_every_macro_is_used_on_the_pattern_page() -> None:
    macros = {found[1]: found[0] for found in _MACRO.finditer(template(TEMPLATES / "macros.html"))}
    drawn = template(pattern.FOLDER / "pattern.html") + template(TEMPLATES / "layout.html")
    used = set(re.findall(r"m\.(\w+)\(", drawn))
    while more := {
        name
        for name in macros
        if name not in used and any(re.search(rf"\b{name}\(", macros[each]) for each in used)
    }:
        used |= more

    assert len(macros) > 30
    assert set(macros) - used == set()


def test_every_class_of_the_stylesheet_is_on_the_pattern_page() -> None:
    on_page = {
        name for each in shown().page.walk() for name in each.attributes.get("class", "").split()
    }

    assert len(styled()) > 100
    assert styled() - on_page == set()


def test_the_pattern_page_runs_nothing_of_its_own_and_names_its_fields() -> None:
    assert inline(shown()) == []
    assert nameless(shown()) == []


def test_the_deployed_console_does_not_have_the_pattern_page(admin: Browser) -> None:
    assert admin.get(pattern.PATH).status == 404


def test_the_stylesheet_has_four_sizes_of_type_and_two_weights() -> None:
    style = template(FOLDER / "console.css")
    sizes = set(re.findall(r"font(?:-size)?: (?:\d+ )?(\d+px)", style)) - {"0px"}

    # And 16 px in fields of a phone, which would zoom in on less.
    assert sizes == {"12px", "13px", "15px", "16px", "20px"}
    assert set(re.findall(r"font-weight: (\d+)", style)) == {"400", "600"}
