"""The tour of the guide leads over pages that are there, and names what stands on them."""

import re
from pathlib import Path

import pytest

from tests.console.conftest import Browser

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "console.md"
STOPS = re.split(r"^Open `([^`]+)`\.$", GUIDE.read_text(), flags=re.MULTILINE)[1:]


@pytest.mark.parametrize(("address", "told"), list(zip(STOPS[::2], STOPS[1::2], strict=True)))
def test_the_tour_leads_to_what_it_tells_of(filled: Browser, address: str, told: str) -> None:
    filled.put("ngsi.notify")
    filled.clock.forward(120)
    shown = filled.get(address)

    assert shown.status == 200
    named = re.findall(r"\*\*([^*]+)\*\*", told.split("\n## ", maxsplit=1)[0])
    assert [name for name in named if name not in shown.text] == []
