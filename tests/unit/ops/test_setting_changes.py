"""What the audit keeps of changed settings is bounded, and has no secrets."""

from headrace.domain.fairness import GroupMode, GroupSettings
from headrace.domain.push import Target
from headrace.domain.queue import QueueSettings
from headrace.ops.shared.audit import changed_settings


def test_only_what_differs_is_kept_by_its_path() -> None:
    before = QueueSettings(target=Target(url="https://a.example", headers={"X": "1", "Y": "1"}))
    after = QueueSettings(target=Target(url="https://b.example", headers={"X": "1", "Y": "2"}))

    assert changed_settings(before, before) == ({}, {})
    assert changed_settings(before, after) == (
        {"target.headers.Y": "********", "target.url": "https://a.example"},
        {"target.headers.Y": "******** (another)", "target.url": "https://b.example"},
    )


def test_long_values_are_cut_and_many_fields_are_left_out() -> None:
    weights = {f"group{number:04}": 2.0 for number in range(100)}
    before = QueueSettings(description="x" * 300)
    after = QueueSettings(
        description="x" * 300 + "y", groups=GroupSettings(GroupMode.FAIR, weights)
    )
    old, new = changed_settings(before, after)

    assert len(old) == len(new) == 32
    assert old["description"] == "x" * 200 + "…"
    assert new["description"] == "x" * 200 + "… (another)"
