"""What Lambda calls as `authorizer.handler`; `headrace.entries` has it, so that the wheel does."""

from headrace.entries.authorizer import handler

__all__ = ["handler"]
