"""axe-core finds no fault on any page, in either theme, narrow or wide, for each role."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Page

from tests.browser.chrome import Colours
from tests.browser.conftest import Console, Enter
from tests.browser.places import pages, states

_AXE: Final = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
_ALL: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
_COLOURS: Final = ("color-contrast", "link-in-text-block")  # all that differs between the themes
_NARROWEST: Final = 320
_RUN: Final = """
([context, runOnly]) => axe.run(context, {runOnly, resultTypes: ["violations"]})
"""
_UNFOLD: Final = """
for (const fold of document.querySelectorAll("details:not(.drop)")) fold.open = true;
for (const large of document.querySelectorAll("[data-large]")) large.checked = true;
"""
_DROPS: Final = "details.drop"  # a menu, which covers what is below it when it is open
# Later rows and steps are made as the first ones, and would take most of the time.
_THIN: Final = """
for (const more of document.querySelectorAll(
  ".chart tr:nth-child(n+9), .tasks tr:nth-child(n+9)"
)) more.remove();
"""


def violations(page: Page, rules: Sequence[str]) -> list[str]:
    """Return the rules that the page breaks and where, with each menu closed and open."""
    wrong = _violations(page, "html", rules)
    for drop in page.locator(_DROPS).all():
        drop.evaluate("(drop) => { drop.open = true }")
        wrong += _violations(page, "details.drop[open]", rules)
        drop.evaluate("(drop) => { drop.open = false }")
    return wrong


def _violations(page: Page, root: str, rules: Sequence[str]) -> list[str]:
    found: Mapping[str, Any] = page.evaluate(_RUN, [{"include": [root]}, list(rules)])
    return [
        f"{rule['id']}: {node['target']}" for rule in found["violations"] for node in rule["nodes"]
    ]


def too_wide(page: Page, width: int) -> list[str]:
    """Return by how much the page is wider than a window of *width* pixels."""
    page.set_viewport_size({"width": width, "height": 900})
    over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return [f"{over} px too wide at {width}"] if over > 0 else []


def check(
    enter: Enter,
    role: str | None,
    places: Mapping[str, str],
    widths: Sequence[int],
    themes: Sequence[Colours],
) -> None:
    """Look at each page at *widths* in *themes* and assert that nothing is wrong."""
    user = enter(role, script=True, width=widths[0]).keep_still()
    page = user.page
    page.add_init_script(path=_AXE)
    wrong: dict[str, list[str]] = {}
    for name, path in places.items():
        user.go(path)
        assert page.title().endswith(" · Headrace local"), name
        page.evaluate(_UNFOLD)
        page.evaluate(_THIN)
        found = []
        for width in widths:
            found += too_wide(page, width)
            for theme in themes:
                page.emulate_media(color_scheme=theme)
                rules = _ALL if theme == themes[0] else _COLOURS
                found += [f"{one}, {theme}, {width}" for one in violations(page, rules)]
        wrong[name] = found

    assert {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.gate
def test_axe_finds_nothing_on_one_page_of_each_template(console: Console, enter: Enter) -> None:
    check(enter, "admin", pages(console.names), (1280,), ("light",))


@pytest.mark.parametrize("role", ["admin", "viewer"])
def test_axe_finds_nothing_on_any_page_at_any_width_in_any_theme(
    console: Console, enter: Enter, role: str
) -> None:
    places = pages(console.names) | states(console.fixtures)
    widths = (1280, 390, _NARROWEST) if role == "admin" else (1280,)
    check(enter, role, places, widths, ("light", "dark"))


def test_axe_finds_nothing_on_the_page_that_asks_for_a_key(enter: Enter) -> None:
    check(enter, None, {"sign-in": "/console/sign-in"}, (1280, _NARROWEST), ("light", "dark"))
