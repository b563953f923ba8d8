"""Escape what a terminal obeys or a reader cannot see, wherever text from outside is shown.

Task names, error texts and tags come from producers and workers.  A terminal would obey their
control characters, and bidirectional ones make a line read as another.
"""

import re
from collections.abc import Callable
from typing import Final

_UNSEEN: Final = re.compile(
    "\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # controls, but for tabs and new lines
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"  # what reorders text, hides in it, or is half a pair
)


def _backslashed(sign: str) -> str:
    return repr(sign)[1:-1]


def escape_unseen(text: str, spell: Callable[[str], str] = _backslashed) -> str:
    r"""Return *text* with each control, bidirectional or invisible character as *spell* writes it.

    By default as Python does: ``\x1b``, ``\u202e``.  Tabs, new lines and the joiners of scripts
    and emoji stay.
    """
    return _UNSEEN.sub(lambda found: spell(found[0]), text)


def json_escape(sign: str) -> str:
    r"""Return *sign* as a string of JSON may contain it: ``\u202e``."""
    units = sign.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
