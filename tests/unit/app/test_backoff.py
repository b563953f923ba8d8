"""Retry strategies by name, and what the package exports for handlers and callers."""

import ast
import inspect
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest

import headrace
from headrace import InvalidRequest, RetryStrategy, backoff
from headrace.client.app import checks, outcomes
from headrace.domain import errors, limits
from headrace.domain.retry import Backoff


def waits(strategy: RetryStrategy) -> list[float]:
    """The first four waits, without jitter."""
    return [strategy.delay_seconds(retry, 0.5) for retry in range(1, 5)]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (backoff.exponential(1), [1, 2, 4, 8]),
        (backoff.exponential(timedelta(minutes=1), max_delay=100), [60, 100, 100, 100]),
        (backoff.linear(1.5), [1.5, 3, 4.5, 6]),
        (backoff.quadratic(2), [2, 8, 18, 32]),
        (backoff.fixed(7), [7, 7, 7, 7]),
        (backoff.fixed(timedelta(hours=2)), [7200, 7200, 7200, 7200]),
        (backoff.intervals([1, timedelta(hours=3), 5]), [1, 10800, 5, 5]),
    ],
)
def test_a_backoff_waits_as_its_name_says(strategy: RetryStrategy, expected: list[float]) -> None:
    assert waits(strategy) == expected
    assert checks.retry_strategy("retries", strategy) is strategy


def test_a_backoff_says_how_many_retries_there_are() -> None:
    assert backoff.exponential() == RetryStrategy()
    assert backoff.fixed(1, retries=9, jitter=0) == RetryStrategy(
        Backoff.FIXED, max_retries=9, base_seconds=1, jitter=0
    )
    assert backoff.intervals([1, 2, 3]).max_retries == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: backoff.exponential(-1), "base must be a number from 0 to 86400 seconds, not -1"),
        (lambda: backoff.fixed(cast("Any", "1")), "delay must be seconds or a timedelta, not str"),
        (lambda: backoff.linear(1, retries=101), "retries must be a whole number from 0 to 100"),
        (
            lambda: backoff.linear(1, retries=cast("Any", 1.5)),
            "retries must be a whole number from 0 to 100",
        ),
        (lambda: backoff.quadratic(1, jitter=2), "jitter must be a number from 0 to 1, not 2"),
        (
            lambda: backoff.exponential(7200),
            "max_delay must be at least base, 7200 seconds, not 3600",
        ),
        (lambda: backoff.intervals([]), "waits must be 1 to 100 durations, not 0"),
        (lambda: backoff.intervals([1, -1]), r"waits\[1\] must be a number from 0 to 2592000"),
    ],
)
def test_an_argument_out_of_its_limits_is_named(make: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{message}"):
        make()


def test_every_error_is_exported() -> None:
    raised = {
        name
        for module in (errors, outcomes)
        for name, each in inspect.getmembers(module, inspect.isclass)
        if issubclass(each, BaseException) and each.__module__ == module.__name__
    }
    reported_only = {"UnknownTask"}
    assert raised - reported_only <= set(dir(headrace))


def test_limits_are_those_of_the_service() -> None:
    assert headrace.limits is limits


def test_type_checkers_see_what_is_exported() -> None:
    tree = ast.parse(Path(headrace.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    exported = {name: getattr(headrace, name) for name in dir(headrace)}
    seen = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        found = import_module(node.module or "")
        for alias in node.names:
            assert alias.asname == alias.name
            seen[alias.name] = getattr(found, alias.name)
    assert seen == {name: value for name, value in exported.items() if name != "__version__"}
