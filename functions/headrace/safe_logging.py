"""Loggers whose calls never raise, for threads that must outlive a faulty logging setup.

A filter of the program may raise, and so does Python's own handler when `sys.stderr` is closed.
"""

import logging
import sys
import traceback
from collections.abc import MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[Any]  # a logger, or another adapter
else:
    _Adapter = logging.LoggerAdapter


class SafeLogger(_Adapter):
    """Passes each call on to a logger, and reports on the original stderr a call that raises."""

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        """Return both as they are: the base class would drop the ``extra`` of the call."""
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:  # noqa: ANN401 (the base's)
        """Log as the wrapped logger does; raise no Exception."""
        try:
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # skips this function
            super().log(level, msg, *args, **kwargs)
        except Exception:  # noqa: BLE001 (any code of the program may run in here)
            with suppress(Exception):
                traceback.print_exc(file=sys.__stderr__)


def safe_logger(name: str) -> SafeLogger:
    """Return a logger of this *name* whose calls never raise."""
    return SafeLogger(logging.getLogger(name))
