"""The links of the top bar: one line for each page that is a place to begin."""

from typing import Final

from console.chalicelib import urls
from console.chalicelib.parts import Link
from console.chalicelib.request_context import RequestContext
from headrace.domain.access import Permission

ENTRIES: Final = (
    ("Queues", urls.QUEUES, Permission.READ),
    ("Dead letters", urls.DEAD, Permission.LIST),
    ("Schedules", urls.SCHEDULES, Permission.READ),
    ("Pipelines", urls.PIPELINES, Permission.READ),
    ("Proof", urls.PROOF, Permission.READ),
    ("Keys", urls.KEYS, Permission.ADMINISTER),
    ("Audit", urls.AUDIT, Permission.OPERATE),
)
"""Text, route, and what a key needs to be shown it."""

_OF_ALL_QUEUES: Final = frozenset({urls.PROOF})
"""Pages for keys that are for all queues."""


def links(context: RequestContext) -> tuple[Link, ...]:
    """Return the entries for whoever is signed in."""
    here = context.request.target.partition("?")[0].rstrip("/")
    return tuple(
        Link(text, context.url(route), current=context.url(route) == here)
        for text, route, needs in ENTRIES
        if context.allows(needs) and (context.by.everywhere or route not in _OF_ALL_QUEUES)
    )
