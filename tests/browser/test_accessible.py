"""axe-core has nothing against any page, in either light, narrow or wide, for whoever sees it.

Nor has the browser: what it complains of fails a test at its end.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Page

from tests.browser.alike import SEEN, mark
from tests.browser.chrome import Colours
from tests.browser.conftest import Console, Enter
from tests.browser.places import pages, states

_AXE: Final = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
_ALL: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
_NARROWEST: Final = 320
_OF_COLOUR: Final = ("color-contrast", "link-in-text-block")  # the only ones that see the light
# They see an element, what is in it and how it is laid out, no text and nothing by its id: what
# is made alike passes them alike.  They take most of axe's time.
_OF_MAKE: Final = (*_OF_COLOUR, "target-size", "td-has-header", "th-has-data-cells",
                   "td-headers-attr")  # fmt: skip
_RUN: Final = """
([context, runOnly, rules]) => axe.run(context, {runOnly, rules, resultTypes: ["violations"]})
"""
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
_OPEN_ALL: Final = f"""
(open) => {{ for (const drop of document.querySelectorAll("{_LIES_OVER}")) drop.open = open }}
"""


def violations(page: Page, colours: Colours, *, whole: bool) -> list[str]:
    """The violations axe-core finds in this light: the rule and where.

    Unless it looks at the *whole* page, it looks at what is new, and in the dark at colours alone.
    What lies over others when it is open is looked at by itself, unless it is seen already.
    """
    page.emulate_media(color_scheme=colours)
    light = colours == "light"
    wrong = _violations(page, "html", _ALL, but=_OF_MAKE) if light and whole else []
    rules = (_OF_MAKE if whole else _ALL) if light else _OF_COLOUR
    wrong += _violations(page, "html", rules, but=(), seen=SEEN)
    for drop in page.locator(_LIES_OVER).all():
        if drop.evaluate("(drop, seen) => !!drop.closest(seen)", SEEN):
            continue
        drop.evaluate(_OPEN, arg=True)
        wrong += _violations(page, "details.drop[open]", _ALL if light else rules)
        drop.evaluate(_OPEN, arg=False)
    return [f"{found}, {colours}" for found in wrong]


def unfit(page: Page, width: int) -> list[str]:
    """What is wider than a window of *width* pixels, with all that can be open."""
    page.set_viewport_size({"width": width, "height": 900})
    over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    wrong = [f"{over} px too wide at {width}"] if over > 0 else []
    if width == _NARROWEST:  # there a list may be narrower than its longest option
        return wrong
    return wrong + [f"{select} is clipped at {width}" for select in page.evaluate(_CLIPPED)]


def _violations(
    page: Page, root: str, rules: Sequence[str], but: Sequence[str] = (), seen: str | None = None
) -> list[str]:
    context = {"include": [root], "exclude": [seen] if seen else []}
    off = {rule: {"enabled": False} for rule in but}
    found: Mapping[str, Any] = page.evaluate(_RUN, [context, list(rules), off])
    return [
        f"{rule['id']}: {node['target']}" for rule in found["violations"] for node in rule["nodes"]
    ]


@pytest.fixture(scope="module")
def seen() -> Mapping[int, set[str]]:
    """What is made as any of these, has been looked at in a window of this width."""
    return defaultdict(set)


@pytest.mark.parametrize(
    ("role", "widths"),  # what a viewer is shown is laid out as it is for an admin, who sees more
    [("admin", (1280, 390)), ("viewer", (1280,)), (None, (1280, 390))],
)
def test_axe_finds_nothing_on_any_page(
    console: Console,
    enter: Enter,
    seen: Mapping[int, set[str]],
    role: str | None,
    widths: Sequence[int],
) -> None:
    user = enter(role, script=True, width=widths[0]).keep_still()
    page = user.page
    page.add_init_script(path=_AXE)
    places = pages(console.names) | states(console.fixtures)
    if role is None:
        places = {"sign-in": "/console/sign-in"}

    wrong: dict[str, list[str]] = {}
    for name, path in places.items():
        user.go(path)
        assert page.title().endswith(" · Headrace local"), name
        page.evaluate(_UNFOLD)
        page.evaluate(_OPEN_ALL, arg=True)
        wrong[name] = [found for width in (*widths, _NARROWEST) for found in unfit(page, width)]
        page.evaluate(_OPEN_ALL, arg=False)
        page.evaluate(_THIN)
        for width in widths:
            page.set_viewport_size({"width": width, "height": 900})
            mark(page, seen[width])
            whole = width == widths[0]  # its text and ids are the same in each width
            found = violations(page, "light", whole=whole) + violations(page, "dark", whole=whole)
            wrong[name] += [f"{each} at {width}" for each in found]

    assert {name: found for name, found in wrong.items() if found} == {}
