"""The clock of every test is the one that users are given."""

from headrace.testing.clock import ManualClock

__all__ = ["ManualClock"]
