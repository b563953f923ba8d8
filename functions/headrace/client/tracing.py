"""The trace that a new task belongs to, in its tag ``traceparent`` (W3C Trace Context).

That is the span that is open where the task is enqueued, if the program uses OpenTelemetry; else,
in a handler, what the handler's own task carries: so a trace goes on through workers without it.
Nothing is imported for it, and a task that has the tag, or no room for it, stays as it is.
"""

import sys
from collections.abc import Mapping
from typing import Final

from headrace.client.current import current_attempt
from headrace.domain import limits

TRACEPARENT: Final = "traceparent"


def traced(tags: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """*tags* with the present trace; as they are, if there is none."""
    known = tags or {}
    if TRACEPARENT in known or len(known) >= limits.TAGS:
        return tags
    parent = _of_span() or _of_attempt()
    return tags if parent is None else {**known, TRACEPARENT: parent}


def traced_move(
    tags: Mapping[str, str] | None, before: Mapping[str, str]
) -> Mapping[str, str] | None:
    """The tags of a moved task that had those *before*; *tags* None keeps them.

    The span that moves it, where there is one, is what its next attempt follows.
    """
    if tags is not None:
        return traced(tags)
    without = {name: value for name, value in before.items() if name != TRACEPARENT}
    moved = traced(without)
    return None if moved in (None, before, without) else moved


def _of_span() -> str | None:
    get_current_span = getattr(sys.modules.get("opentelemetry.trace"), "get_current_span", None)
    if get_current_span is None:  # not loaded, so there is no span
        return None
    span = get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def _of_attempt() -> str | None:
    attempt = current_attempt()
    return None if attempt is None else attempt.tags.get(TRACEPARENT)
