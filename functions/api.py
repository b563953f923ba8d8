"""What Lambda calls as `api.handler`; `headrace.entries` has it, so that the wheel does."""

from headrace.entries.api import handler

__all__ = ["handler"]
