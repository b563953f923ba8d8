"""Every page for people who come from another queue has our side of the same ten use cases."""

import pytest

from infra.coming_from import OURS, PAGES, SOURCE, use_cases, with_ours

HERE = use_cases(SOURCE.read_text())


def test_a_page_shows_our_side_as_the_guide_does_and_something_of_theirs() -> None:
    for page in PAGES:
        text = page.read_text()
        assert with_ours(text, HERE) == text, page  # else: make coming-from
        for heading, body in use_cases(text).items():
            theirs = body.partition(OURS)[0].strip().partition("\n")[2]
            assert len(theirs) > 20, (page, heading)


def test_a_page_with_other_use_cases_is_refused() -> None:
    page = PAGES[0].read_text()

    with pytest.raises(ValueError, match="its use cases are"):
        with_ours(page.replace("## 2. ", "## 3. "), HERE)
    with pytest.raises(ValueError, match="has no"):
        with_ours(page.replace(OURS, "", 1), HERE)
