"""Where Tab leads: through the whole page in the order it is read, with the focus in sight."""

import pytest

from tests.browser.conftest import Console, Enter
from tests.browser.places import pages, states

# The rows after these have links of the same kinds.
_THIN = "for (const one of document.querySelectorAll('tbody > :nth-child(n+7)')) one.remove()"
_PLACES = {"header": 1, "main": 2, "footer": 3, "": 0}


@pytest.mark.parametrize("script", ["without script", "with script"])
def test_tab_goes_through_every_page_in_order(console: Console, enter: Enter, script: str) -> None:
    looked_at = pages(console.names)
    user = enter(script=True).keep_still()
    if script == "without script":  # what the script adds, it adds to the pages themselves
        user.keep_plain()
        looked_at |= states(console.fixtures)
    for name, path in looked_at.items():
        user.go(path).page.evaluate(_THIN)
        stops = user.stops()

        assert stops[0]["name"] == "Skip to the page", name
        orders = [stop["order"] for stop in stops]
        assert orders == sorted(orders), name
        places = [_PLACES[stop["place"]] for stop in stops]
        assert places == sorted(places), name
        assert [stop for stop in stops if not stop["name"] and stop["tag"] != "pre"] == [], name


def test_the_bar_can_be_skipped(enter: Enter) -> None:
    user = enter().go("/console/queues/mail")
    user.tab_to("Skip to the page").press("Enter")
    stop = user.tab()

    assert stop is not None
    assert (stop["place"], stop["name"]) == ("main", "Queues")
