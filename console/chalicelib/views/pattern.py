"""The pattern page: for whoever changes how the console looks."""

from typing import Final

from console.chalicelib import urls
from console.chalicelib.request_context import RequestContext
from console.chalicelib.routes import Reply, Routes
from headrace.domain.access import Permission

routes: Final = Routes()


@routes.get(urls.PATTERN, Permission.ADMINISTER)
def show(context: RequestContext) -> Reply:
    """Show each element once."""
    # Only now: no start of the function should wait for it.
    from console.chalicelib.views.pattern_page import page  # noqa: PLC0415

    return page(context)
