"""What Lambda calls as `dispatcher.handler`; `headrace.entries` has it, so that the wheel does."""

from headrace.entries.dispatcher import handler

__all__ = ["handler"]
