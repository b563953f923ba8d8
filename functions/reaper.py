"""What Lambda calls as `reaper.handler`; `headrace.entries` has it, so that the wheel does."""

from headrace.entries.reaper import handler

__all__ = ["handler"]
