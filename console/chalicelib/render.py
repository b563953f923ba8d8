"""Pages to HTML: the one Jinja2 environment, and its filters.

Autoescape is always on, what is printed has control and bidi characters by their names (``exact``
is for what is sent back or copied, which must stay as it is), and a name that a page does not have
is an error.  Templates get ``page`` and ``frame``, both frozen, and compute nothing.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
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


def render(page: Page, frame: Frame, *, parts: str | None = None) -> str:
    """Return the HTML of *page*, or of some *parts* of it: blocks whose names begin with live.

    Raises LookupError for a part that the page does not have.
    """
    template = environment().get_template(page.template)
    names: Mapping[str, Any] = {"page": page, "frame": frame}
    if parts is None:
        return template.render(names)
    wanted = dict.fromkeys(parts.split())  # each once, however often it is named
    if not all(part.startswith("live") for part in wanted):
        raise LookupError(parts)
    context = template.new_context(dict(names))
    return "".join(
        f'<div data-live="{part}">{"".join(template.blocks[part](context))}</div>'
        for part in wanted
    )


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
        "short": formatting.short_number,
        "rate": formatting.rate,
        "size": formatting.size,
        "duration": formatting.duration,
        "cut": formatting.cut,
        "exact": escape,
        "ago": _ago,
        "clock": _clock,
        "instant": formatting.rfc3339,
    }
    made.filters.update(filters)
    return made


def _escape_unseen(value: object) -> object:
    """Return *value* as it is printed: ``⟨U+202E⟩`` in text stands for a character of that code."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return escape_unseen(value, lambda sign: f"⟨U+{ord(sign):04X}⟩")
    return value


@pass_context
def _ago(context: Context, at: datetime) -> Markup:
    """Return an instant as relative text, the instant itself in the element."""
    now: datetime = context["frame"].now
    return _TIME.format(
        formatting.rfc3339(at), formatting.clock(at), "ago", formatting.ago(at, now)
    )


def _clock(at: datetime) -> Markup:
    """Return an instant in full."""
    return _TIME.format(formatting.rfc3339(at), formatting.clock(at), "clock", formatting.clock(at))
