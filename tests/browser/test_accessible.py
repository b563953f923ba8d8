"""axe-core has nothing against any page, in either light, narrow or wide, for whoever sees it.

Nor has the browser: what it complains of fails a test at its end.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Locator, Page

from tests.browser.conftest import Console, Enter
from tests.browser.places import pages, states

_AXE: Final = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
_ALL: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
_NARROWEST: Final = 320
_OF_COLOUR: Final = ("color-contrast", "link-in-text-block")  # the only ones that see the light
_RUN: Final = "(root, rules) => axe.run(root, {runOnly: rules, resultTypes: ['violations']})"
# A page that looks again while it is looked at has rows where axe has measured others.
_STILL: Final = "window.fetch = () => new Promise(() => {})"
_UNFOLD: Final = (
    "for (const fold of document.querySelectorAll('details:not(.drop)')) fold.open = true"
)
# Each step of a chart has a bar and a row like those before it, and much of axe's time.
_THIN: Final = """
for (const more of document.querySelectorAll(
  ".plot > .step-hover:nth-of-type(n+9), .chart tr:nth-child(n+9), .tasks tr:nth-child(n+31)"
)) more.remove();
"""
_LIES_OVER: Final = "details.drop"  # what else is there, and covers it as it happens to be long
_CLIPPED: Final = """
() => [...document.querySelectorAll("select")].filter((select) => {
  const whole = select.cloneNode(true);
  whole.style.cssText = "width: max-content; position: absolute; visibility: hidden";
  select.after(whole);
  const clipped = whole.offsetWidth > select.offsetWidth && select.checkVisibility();
  whole.remove();
  return clipped;
}).map((select) => select.name)
"""  # each has room for the longest of its options
_OPEN: Final = "(drop, open) => { drop.open = open }"


def violations(page: Page, rules: Sequence[str], known: Collection[str]) -> list[str]:
    """The violations axe-core finds: the rule and where.

    What lies over others when it is open is looked at by itself, unless its name is *known*.
    """
    wrong = _violations(page.locator("html"), rules)
    for drop in page.locator(_LIES_OVER).all():
        if _name(drop) in known:
            continue
        drop.evaluate(_OPEN, arg=True)
        wrong += _violations(drop, rules)
        drop.evaluate(_OPEN, arg=False)
    return wrong


def unfit(page: Page, width: int) -> list[str]:
    """What is wider than a window of *width* pixels, with all that can be open."""
    page.set_viewport_size({"width": width, "height": 900})
    over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    wrong = [f"{over} px too wide at {width}"] if over > 0 else []
    if width == _NARROWEST:  # there a list may be narrower than its longest option
        return wrong
    return wrong + [f"{select} is clipped at {width}" for select in page.evaluate(_CLIPPED)]


def _name(drop: Locator) -> str:
    return str(drop.locator("summary").inner_text())


def _violations(root: Locator, rules: Sequence[str]) -> list[str]:
    found: Mapping[str, Any] = root.evaluate(_RUN, list(rules))
    return [
        f"{rule['id']}: {node['target']}" for rule in found["violations"] for node in rule["nodes"]
    ]


@pytest.mark.parametrize(
    ("role", "widths"),  # what a viewer is shown is laid out as it is for an admin, who sees more
    [("admin", (1280, 390)), ("viewer", (1280,)), (None, (1280, 390))],
)
def test_axe_finds_nothing_on_any_page(
    console: Console, enter: Enter, role: str | None, widths: Sequence[int]
) -> None:
    user = enter(role, script=True, width=widths[0])
    page = user.page
    page.add_init_script(_STILL)
    page.add_init_script(path=_AXE)
    places = pages(console.names) | states(console.fixtures)
    if role is None:
        places = {"sign-in": "/console/sign-in"}

    wrong: dict[str, list[str]] = {}
    known: set[str] = set()  # the same on each page, and each look at one is a look at its page
    for name, path in places.items():
        user.go(path)
        assert page.title().endswith(" · Headrace local"), name
        page.evaluate(_UNFOLD)
        drops = page.locator(_LIES_OVER).all()
        for drop in drops:
            drop.evaluate(_OPEN, arg=True)
        wrong[name] = [found for width in (*widths, _NARROWEST) for found in unfit(page, width)]
        for drop in drops:
            drop.evaluate(_OPEN, arg=False)
        page.evaluate(_THIN)
        for width in widths:
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme="light")
            wrong[name] += [f"{found} at {width}" for found in violations(page, _ALL, known)]
            page.emulate_media(color_scheme="dark")
            dark = violations(page, _OF_COLOUR, known)
            wrong[name] += [f"{found} at {width}, dark" for found in dark]
        known |= {_name(drop) for drop in drops}

    assert {name: found for name, found in wrong.items() if found} == {}
