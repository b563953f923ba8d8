"""Every page for people who come from another queue has our side of the same ten use cases."""

from pathlib import Path

import pytest

from infra.coming_from import OURS, PAGES, SOURCE, use_cases, with_ours

HERE = use_cases(SOURCE.read_text())


def test_there_are_ten_use_cases() -> None:
    assert [int(heading.split()[1].rstrip(".")) for heading in HERE] == list(range(1, 11))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_our_side_as_the_guide_does(page: Path) -> None:
    text = page.read_text()

    assert with_ours(text, HERE) == text  # else: make coming-from


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_something_of_theirs_in_each_use_case(page: Path) -> None:
    for heading, body in use_cases(page.read_text()).items():
        theirs = body.partition(OURS)[0].strip().partition("\n")[2]
        assert len(theirs) > 20, heading


def test_a_page_with_other_use_cases_is_refused() -> None:
    page = PAGES[0].read_text()

    with pytest.raises(ValueError, match="its use cases are"):
        with_ours(page.replace("## 2. ", "## 3. "), HERE)
    with pytest.raises(ValueError, match="has no"):
        with_ours(page.replace(OURS, "", 1), HERE)
