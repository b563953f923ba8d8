"""Errors of one fault share a fingerprint, others do not."""

import pytest

from headrace.domain.filters import fingerprint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no answer after 30 s", "no answer after 3.5 s"),
        ("no task tsk_01kx3v9m2p4q6r8s0t2v4w6y8z", "no task tsk_01kx3v9m2p4q6r8s0t2v4w6y90"),
        (
            "order 6fa459ea-ee8a-3ca4-894e-db77e160355e is gone",
            "order 16fd2706-8baf-433b-82eb-8c7fada847da is gone",
        ),
        ("at 0x7f3991 of deadbeef01", "at 0x7fffff of cafe0123"),
        ("at 2026-11-21T08:00:00.1Z", "at 2025-01-02T03:04:05.6Z"),
    ],
)
def test_what_is_particular_to_one_task_makes_no_difference(one: str, other: str) -> None:
    assert fingerprint("Fault", one) == fingerprint("Fault", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("Timeout", "no answer"), ("Refused", "no answer")),
        (("Timeout", "no answer"), ("Timeout", "no room")),
        (("a", "b"), ("", "a\nb")),
        (("", ""), ("", "expired")),
    ],
)
def test_other_faults_have_other_fingerprints(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert fingerprint(*one) != fingerprint(*other)
