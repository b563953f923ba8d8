"""The links of the top bar: one line for each page that is a place to begin."""

from typing import Final

from console.chalicelib import urls
from console.chalicelib.pages.parts import Link
from console.chalicelib.visit import Visit
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


def links(visit: Visit) -> tuple[Link, ...]:
    """Return the entries for whoever is signed in."""
    here = visit.request.target.partition("?")[0].rstrip("/")
    return tuple(
        Link(text, visit.url(route), current=visit.url(route) == here)
        for text, route, needs in ENTRIES
        if visit.allows(needs) and (visit.by.everywhere or route not in _OF_ALL_QUEUES)
    )
