"""What Lambda calls as `scheduler.handler`; `headrace.entries` has it, so that the wheel does."""

from headrace.entries.scheduler import handler

__all__ = ["handler"]
