"""A store whose calls go through a function of the test."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from headrace.store.base import Claim, Store

METHODS: Final = tuple(
    name
    for name, value in vars(Store).items()
    if callable(value) and name != "claim" and not name.startswith("_")
)


class WrappedStore:
    """Passes each call to *around* with its name, the method of *store*, and the arguments.

    A store like this has no transactions over several calls, and wakes no waiting calls: they look
    again after a while.
    """

    arrivals = None
    task_ends = None

    def __init__(self, store: Store, around: Callable[..., Any]) -> None:
        for name in METHODS:
            setattr(self, name, partial(around, name, getattr(store, name)))

    def claim(self, claim: Claim) -> None:
        claim.claim()
