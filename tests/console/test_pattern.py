"""The pattern page stays whole: whatever the pages are drawn with is on it."""

import re
from typing import Final

from console.chalicelib.assets import FOLDER
from console.chalicelib.render import TEMPLATES
from tests.console.conftest import Browser

_MACRO: Final = re.compile(r"{%-? macro (\w+)\(.*?{%-? endmacro", re.DOTALL)
_COMMENTS: Final = re.compile(r"/\*.*?\*/|{#.*?#}", re.DOTALL)
_CLASS: Final = re.compile(r"\.([a-z][\w-]*)")
_PRELUDE: Final = re.compile(r"[^{};]+(?={)")


def template(name: str) -> str:
    return _COMMENTS.sub("", (TEMPLATES / name).read_text())


def styled() -> set[str]:
    """Return every class that the stylesheet knows."""
    style = _COMMENTS.sub("", (FOLDER / "console.css").read_text())
    return {name for prelude in _PRELUDE.findall(style) for name in _CLASS.findall(prelude)}


def classes_on(browser: Browser, url: str) -> set[str]:
    page = browser.get(url).page
    return {name for each in page.walk() for name in each.attributes.get("class", "").split()}


def test_every_macro_is_used_on_the_pattern_page() -> None:
    macros = {found[1]: found[0] for found in _MACRO.finditer(template("macros.html"))}
    used = set(re.findall(r"m\.(\w+)\(", template("pattern.html") + template("layout.html")))
    while more := {
        name
        for name in macros
        if name not in used and any(re.search(rf"\b{name}\(", macros[each]) for each in used)
    }:
        used |= more

    assert len(macros) > 30
    assert set(macros) - used == set()


def test_every_class_of_the_stylesheet_is_on_the_pattern_page(filled: Browser) -> None:
    assert len(styled()) > 100
    assert styled() - classes_on(filled, "/console/pattern") == set()
