"""Work in children of the test's process, which share nothing with it but files."""

import os
import pickle
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def in_children(count: int, work: Callable[[int], T]) -> list[T]:
    """Start *work* in *count* forks at the same moment and return what each made of it."""
    start, go = os.pipe()
    children = [_child(number, work, start, go) for number in range(count)]
    os.close(start)
    os.write(go, b"." * count)
    os.close(go)
    made: list[Any] = []
    for pid, answer in children:
        with os.fdopen(answer, "rb") as pipe:
            made.append(pickle.load(pipe))  # noqa: S301  of our own child
        os.waitpid(pid, 0)
    wrong = [error for _, error in made if error is not None]
    assert not wrong, wrong[0]
    return [result for result, _ in made]


def _child(number: int, work: Callable[[int], object], start: int, go: int) -> tuple[int, int]:
    answer, told = os.pipe()
    pid = os.fork()
    if pid:
        os.close(told)
        return pid, answer
    try:
        os.close(go)
        os.read(start, 1)
        made: tuple[object, str | None] = (work(number), None)
    except BaseException:  # noqa: BLE001  the parent hears of it; pytest must not go on here
        made = (None, traceback.format_exc())
    try:
        with os.fdopen(told, "wb") as pipe:
            pickle.dump(made, pipe)
    finally:
        os._exit(0)
