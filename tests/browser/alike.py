"""What is made as something that was looked at before, in such a place: once is enough for it.

Half of each page is made as on the others: its bar, its charts, the rows of its tables.  A look
that depends on how a thing is made, and not on what it says, need not be had again: colours, sizes
and the make of tables come from elements, classes and where they are.
"""

from typing import Final

from playwright.sync_api import Page

SEEN: Final = "[data-seen]"
"""Selects what ``mark`` has marked."""

# Made alike: the same element with the same attributes (that of some of them differs is no matter),
# text or none, and what is in it made alike.  In such a place: so are all that it is in, and so
# begin those beside it.  A mark is no part of that.
_MARK: Final = """
(before) => {
  const VALUES = [
    "class", "data-label", "dir", "lang", "role", "scope", "style", "tabindex", "type",
  ];
  const known = new Set(before.split(" ")), found = [], makes = new Map();
  const short = (text) => {
    let one = 0xdeadbeef, two = 0x41c6ce57;
    for (let at = 0; at < text.length; at++) {
      one = Math.imul(one ^ text.charCodeAt(at), 2654435761);
      two = Math.imul(two ^ text.charCodeAt(at), 1597334677);
    }
    return (one >>> 0).toString(36) + (two >>> 0).toString(36);
  };
  const begin = (at) => at && at.tagName + [...at.attributes].map(({name, value}) =>
    VALUES.includes(name) || name.startsWith("aria-") && !/label|desc|control|own/.test(name)
      ? `${name}=${value}` : value ? name : `${name}=`).sort();
  const make = (at) => {
    const says = [...at.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
    makes.set(at, short(`${begin(at)} ${says} ${[...at.children].map(make)}`));
    return makes.get(at);
  };
  const look = (at, place) => {
    const beside = [at.previousElementSibling, at.nextElementSibling].map(begin);
    const key = short(`${place} ${beside} ${makes.get(at)}`);
    if (known.has(key)) return at.setAttribute("data-seen", "");
    known.add(key);
    found.push(key);
    for (const one of at.children) look(one, short(`${place} ${begin(at)}`));
  };
  for (const one of document.querySelectorAll("[data-seen]")) one.removeAttribute("data-seen");
  make(document.body);
  look(document.body, "");
  return found.join(" ");
}
"""


def mark(page: Page, seen: set[str]) -> None:
    """Mark what is made as something in *seen*, and add to that what is new."""
    seen.update(page.evaluate(_MARK, " ".join(seen)).split())
