"""axe-core has nothing against any page, in either light, narrow or wide, for whoever sees it."""

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
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(_AXE.read_text())
    wrong = _violations(page.locator("html"), rules)
    for drop in page.locator(_LIES_OVER).all():
        if _name(drop) in known:
            continue
        drop.evaluate(_OPEN, arg=True)
        wrong += _violations(drop, rules)
        drop.evaluate(_OPEN, arg=False)
    return wrong


def _name(drop: Locator) -> str:
    return str(drop.locator("summary").inner_text())


def _violations(root: Locator, rules: Sequence[str]) -> list[str]:
    found: Mapping[str, Any] = root.evaluate(_RUN, list(rules))
    return [
        f"{rule['id']}: {node['target']}" for rule in found["violations"] for node in rule["nodes"]
    ]


@pytest.mark.parametrize(
    ("role", "width"),  # what a viewer is shown is laid out as it is for an admin, who sees more
    [("admin", 390), ("admin", 1280), ("viewer", 1280), (None, 390), (None, 1280)],
)
def test_axe_finds_nothing_on_any_page(
    console: Console, enter: Enter, role: str | None, width: int
) -> None:
    user = enter(role, script=True, width=width)
    page = user.page
    page.add_init_script(_STILL)
    places = pages(console.names) | states(console.fixtures)
    if role is None:
        places = {"sign-in": "/console/sign-in"}

    wrong: dict[str, list[str]] = {}
    known: set[str] = set()  # the same on each page, and each look at one is a look at its page
    for name, path in places.items():
        user.go(path)
        page.evaluate(_UNFOLD)
        page.emulate_media(color_scheme="light")
        wrong[name] = violations(page, _ALL, known)
        page.emulate_media(color_scheme="dark")
        wrong[name] += [f"dark {found}" for found in violations(page, _OF_COLOUR, known)]
        for drop in page.locator(_LIES_OVER).all():
            known.add(_name(drop))
            drop.evaluate(_OPEN, arg=True)
        for wide in (min(width, _NARROWEST), width):
            page.set_viewport_size({"width": wide, "height": 900})
            over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            if over > 0:
                wrong[name].append(f"{over} px too wide at {wide}")
        wrong[name] += [f"{select} is clipped" for select in page.evaluate(_CLIPPED)]

    assert {name: found for name, found in wrong.items() if found} == {}
