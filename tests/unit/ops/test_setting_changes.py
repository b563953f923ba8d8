"""What the audit keeps of changed settings is bounded, and has no secrets."""

from headrace.domain.push import Target
from headrace.domain.queue_settings import QueueSettings
from headrace.ops.shared.audit import changed_settings


def test_only_what_differs_is_kept_by_its_path() -> None:
    before = QueueSettings(target=Target(url="https://a.example", headers={"X": "1", "Y": "1"}))
    after = QueueSettings(target=Target(url="https://b.example", headers={"X": "1", "Y": "2"}))

    assert changed_settings(before, before) == ({}, {})
    assert changed_settings(before, after) == (
        {"target.headers.Y": "********", "target.url": "https://a.example"},
        {"target.headers.Y": "******** (another)", "target.url": "https://b.example"},
    )
