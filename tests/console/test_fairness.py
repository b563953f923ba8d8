"""Groups in the console: shown, filtered by, and whose the next turns are."""

import re

from headrace.domain.task_groups import GroupMode, GroupSettings
from tests.console.conftest import Browser

FAIR = GroupSettings(GroupMode.FAIR, {"acme": 4.0})


def test_a_queue_tells_whose_turns_are_next(admin: Browser) -> None:
    admin.queue("mail", groups=FAIR)
    assert "Nothing waits for its turn." in admin.get("/console/queues/mail").text
    admin.put("mail", "1", "2", group_key="<b>acme</b>")
    admin.put("mail", "3")

    shown = admin.get("/console/queues/mail")

    assert "Whose turns are next" in shown.text
    assert "<b>acme</b>" in shown.text
    assert "<b>acme</b>" not in shown.body
    assert "without a key" in shown.text
    assert re.search(r"2 of the next turns, [0-9.]+/s, oldest due for [0-9.]+ m?s", shown.text)
    assert "fair, 1 weighted" in shown.text


def test_a_task_says_its_group_and_turn_and_lists_take_one(admin: Browser) -> None:
    admin.queue("mail", groups=FAIR)
    (one,) = admin.put("mail", group_key="acme")
    (other,) = admin.put("mail", group_key="beta")

    shown = admin.get(f"/console/tasks/{other}").text
    assert "Group beta" in shown
    assert "Turn 0" in shown
    listed = admin.get("/console/queues/mail?group=acme").body
    assert one in listed
    assert other not in listed
