"""A keyboard user: Tab, Enter, Space and letters; never a mouse."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from playwright.sync_api import BrowserContext, Page

_MOST_STOPS: Final = 400
_MORE: Final = 20

# What the focus is on, as its owner would say it, and how it is drawn there.
_FOCUS: Final = """() => {
  const at = document.activeElement;
  if (!at || at === document.body || at === document.documentElement) return null;
  const box = at.getBoundingClientRect(), style = getComputedStyle(at);
  const labels = [...(at.labels || [])].map((label) => label.innerText).join(" ");
  const by = at.getAttribute("aria-label") || labels;
  return {
    name: (by || at.innerText || at.textContent || at.value || "").trim().replace(/\\s+/g, " "),
    tag: at.tagName.toLowerCase(),
    type: at.type || "",
    value: at.value ?? "",
    place: at.closest("header, main, footer")?.tagName.toLowerCase() || "",
    order: [...document.querySelectorAll("*")].indexOf(at),
    drawn: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    seen: box.width > 0 && box.height > 0 && box.bottom > 0 && box.right > 0
      && box.top < innerHeight && box.left < innerWidth,
    small: box.width < 24 && box.height < 24,
  };
}"""

# Each stop as the next Tab leaves it: without a question to the page after each key.
_NOTE: Final = f"""() => {{
  window.stops = [];
  addEventListener("keydown", () => stops.push(({_FOCUS})()), true);
  return document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, pre, [tabindex='0']").length;
}}"""


@dataclass
class KeyboardUser:
    """A window and its user; ``complaints`` is what should not have happened."""

    context: BrowserContext
    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Listen to everything the browser would complain about."""
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on("requestfailed", self._failed)

    def _console(self, message: Any) -> None:
        # A page that says 400 or 404 is told as an error too.
        if message.type == "error" and "the server responded with a status of" not in message.text:
            self.complaints.append(message.text)

    def _dialog(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _failed(self, request: Any) -> None:
        if "ERR_ABORTED" not in str(request.failure):
            self.complaints.append(f"{request.url}: {request.failure}")

    def keep_plain(self) -> "KeyboardUser":
        """Let pages come without their own script, in a window that could run it."""
        self.context.route("**/*.js", lambda route: route.fulfill(body=""))
        return self

    def keep_still(self) -> "KeyboardUser":
        """Let no page look again: it would have rows where others were looked at."""
        self.page.add_init_script("window.fetch = () => new Promise(() => {})")
        return self

    # What a user does.

    def go(self, path: str) -> "KeyboardUser":
        """Type an address."""
        self.page.goto(f"{self.url}{path}")
        return self

    def tab(self) -> dict[str, Any] | None:
        """Press Tab; say where that leads, None when it leads out of the page.

        Wherever it leads, the focus must be drawn and in sight.
        """
        self.page.keyboard.press("Tab")
        at: dict[str, Any] | None = self.page.evaluate(_FOCUS)
        return at and _in_sight(at)

    def tab_to(self, name: str, *, tags: Sequence[str] = ()) -> "KeyboardUser":
        """Press Tab until the focus is on what begins with *name*, and is one of *tags*."""
        stops = []
        for _ in range(_MOST_STOPS):
            at = self.tab()
            stops.append(at["name"] if at else None)
            fits = at and (not tags or at["tag"] in tags)
            if at and fits and at["name"].casefold().startswith(name.casefold()):
                return self
            if at is None and len(stops) > 1:
                break
        raise AssertionError(f"Tab does not lead to {name!r}: {stops}")

    def press(self, key: str) -> "KeyboardUser":
        """Press a key."""
        self.page.keyboard.press(key)
        return self

    def send(self) -> "KeyboardUser":
        """Press Enter; a page must follow."""
        with self.page.expect_navigation():
            self.page.keyboard.press("Enter")
        return self

    def open(self, name: str) -> "KeyboardUser":
        """Go to a link or button by Tab and press Enter; a page must follow."""
        return self.tab_to(name).send()

    def type(self, name: str, text: str) -> "KeyboardUser":
        """Go to a field by Tab and type; what stood there is typed over."""
        self.tab_to(name, tags=("input", "textarea"))
        self.page.keyboard.press("Control+A")
        self.page.keyboard.type(text)
        return self

    # What a user sees.

    @property
    def heading(self) -> str:
        """The page's one heading."""
        return str(self.page.locator("h1").inner_text())

    @property
    def text(self) -> str:
        """All text of the page."""
        return " ".join(str(self.page.locator("body").inner_text()).split())

    @property
    def notice(self) -> str:
        """What the page says has been done."""
        return str(self.page.locator(".flash").inner_text())

    def stops(self) -> list[dict[str, Any]]:
        """Hold Tab down until it has gone through the page; say where that led, in order.

        Wherever it leads, the focus must be drawn and in sight.  The window must run script, which
        notes that; ``keep_plain`` keeps the page's own from it.
        """
        keys = self.page.keyboard
        stops: list[Any] = []
        more = self.page.evaluate(_NOTE) + 3  # into the page, out of it, and that told
        for _ in range(_MOST_STOPS // _MORE):
            for _ in range(more):
                keys.down("Tab")
            before, *stops = self.page.evaluate("stops")
            assert before is None, f"the focus is on {before} before Tab is pressed"
            for place, at in enumerate(stops):
                if at is None or (place and at["order"] == stops[0]["order"]):  # out, or round
                    keys.up("Tab")
                    return [_in_sight(each) for each in stops[:place]]
            more = _MORE  # there were stops that nobody would have counted
        raise AssertionError(f"Tab does not lead out of the page: {stops[-3:]}")


def _in_sight(at: dict[str, Any]) -> dict[str, Any]:
    assert at["drawn"], f"focus is not drawn on {at}"
    assert at["seen"], f"focus is out of sight on {at}"
    return at
