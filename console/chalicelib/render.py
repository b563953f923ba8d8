"""Pages to HTML: the one Jinja2 environment, and its filters.

Autoescape is always on, what is printed has control and bidi characters by their names (``exact``
is for what is sent back or copied, which must stay as it is), and a name that a page does not have
is an error.  Templates get ``page`` and ``frame``, both frozen, and compute nothing.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from headrace.domain.texts import escape_unseen

from . import formatting
from .pages import Frame, Page

TEMPLATES: Final = Path(__file__).parent / "templates"
_TIME: Final = Markup('<time datetime="{}" title="{}" data-{}>{}</time>')
_AS_OF: Final = re.compile("<time [^>]*data-as-of>[^<]*")
_CURSOR: Final = re.compile(r"\bcursor=[\w%-]+")
_RELATIVE: Final = re.compile("(<time [^>]*data-(?:ago|since)>)[^<]*")


def render(page: Page, frame: Frame) -> str:
    """Return the HTML of *page*."""
    return environment().get_template(page.template).render(page=page, frame=frame)


def etag(html: str) -> str:
    """Return the weak ETag of a page.

    It ignores what differs without a change: the text of relative times, how old the figures are,
    the cost in the footer, and cursors, each of which is encrypted with a new nonce.
    """
    shown, _, _ = _RELATIVE.sub(r"\1", _AS_OF.sub("", html)).partition('<footer class="foot">')
    shown = _CURSOR.sub("", shown)
    return f'W/"{sha256(shown.encode()).hexdigest()[:20]}"'


@cache
def environment() -> Environment:
    """Return the environment; templates are compiled once a process."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_escape_unseen,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters: Mapping[str, Callable[..., Any]] = {
        "number": formatting.number,
        "size": formatting.size,
        "age": formatting.age,
        "duration": formatting.duration,
        "cut": formatting.cut,
        "exact": escape,
        "ago": _ago,
        "since": _since,
        "as_of": _as_of,
        "clock": _clock,
        "instant": formatting.rfc3339,
        "kind": lambda value: type(value).__name__,
    }
    made.filters.update(filters)
    return made


def _escape_unseen(value: object) -> object:
    """Return *value* as pages show it: ``⟨U+202E⟩`` stands for an invisible character."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return escape_unseen(value, lambda sign: f"⟨U+{ord(sign):04X}⟩")
    return value


@pass_context
def _ago(context: Context, at: datetime, mark: str = "ago") -> Markup:
    """Return a time as relative text, with the exact time in the element."""
    words = formatting.ago(at, context["frame"].now)
    return _TIME.format(formatting.rfc3339(at), formatting.clock(at), mark, words)


@pass_context
def _since(context: Context, at: datetime) -> Markup:
    """Return how long ago *at* was: a length of time that grows."""
    words = formatting.duration(int((context["frame"].now - at).total_seconds()))
    return _TIME.format(formatting.rfc3339(at), formatting.clock(at), "since", words)


@pass_context
def _as_of(context: Context, at: datetime) -> Markup:
    """Return the age of the figures, which a refresh renews if nothing else has changed."""
    return _ago(context, at, "ago data-as-of")


def _clock(at: datetime) -> Markup:
    """Return a time in full."""
    return _TIME.format(formatting.rfc3339(at), formatting.clock(at), "clock", formatting.clock(at))
