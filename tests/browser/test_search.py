"""Search boxes with script: terms are completed."""

from tests.browser.conftest import Enter


def test_the_arrows_and_enter_complete_a_key_and_its_value(enter: Enter) -> None:
    user = enter(script=True).go("/console/queues/mail")
    user.type("Search these tasks", "-sta")
    box, list_ = user.page.locator("#query"), user.page.locator("#query-completions")
    list_.get_by_text("state:", exact=True).wait_for()

    user.press("ArrowDown").press("Enter")
    list_.get_by_text("state:dead", exact=True).wait_for()
    assert box.input_value() == "-state:"
    user.page.keyboard.type("de")
    list_.locator("li:only-child").wait_for()
    user.press("ArrowDown").press("Tab")
    assert box.input_value() == "-state:dead "
    assert box.get_attribute("aria-expanded") == "false"
    user.send()
    assert user.page.locator("#query").input_value() == "state:scheduled,ready,inflight,succeeded"


def test_the_box_of_the_bar_knows_the_queues(enter: Enter) -> None:
    user = enter(script=True).go("/console/errors")
    user.type("Search everything", "queue:ma")
    user.page.locator("#bar-completions").get_by_text("queue:mail", exact=True).wait_for()

    user.press("ArrowDown").press("Enter").send()
    assert user.heading == "mail"
