"""What Lambda calls as `recorder.handler`; `headrace.entries` has it, so that the wheel does."""

from headrace.entries.recorder import handler

__all__ = ["handler"]
