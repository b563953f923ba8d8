"""The outcome of an attempt by the class of the exception that its handler raised.

A class includes its subclasses, as in ``except``.  If several declared classes fit, the nearest in
the exception's ``__mro__`` counts, whatever their order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

from headrace.client.app import checks
from headrace.client.app.checks import Duration
from headrace.client.app.outcomes import Reject, Retry, Snooze, SoftTimeLimit
from headrace.domain import limits
from headrace.domain.retry import RetryStrategy

Wait: TypeAlias = Duration | RetryStrategy
ErrorClasses: TypeAlias = type[Exception] | tuple[type[Exception], ...]
RetryOn: TypeAlias = ErrorClasses | Mapping[type[Exception], Wait | None]


@dataclass(frozen=True, slots=True)
class AfterFailure:
    """Whether a failed attempt is followed by another; None for the wait: as the strategy says."""

    retryable: bool = True
    delay_in_seconds: float | None = None


@final
class _Rejected:
    """Stands for: not tried again."""


Rule: TypeAlias = float | RetryStrategy | _Rejected | None  # a number is seconds
_REJECTED: Final = _Rejected()
_AS_THE_STRATEGY_SAYS: Final = AfterFailure()
_NEVER: Final = AfterFailure(retryable=False)


@dataclass(frozen=True, slots=True)
class ErrorRules:
    """The outcome for each declared class of exceptions."""

    by_class: Mapping[type[Exception], Rule] = field(default_factory=dict)
    others_rejected: bool = False

    @classmethod
    def of(cls, retry_on: RetryOn | None, reject_on: ErrorClasses | None) -> "ErrorRules":
        """Check what was declared.  Raises InvalidRequest naming the option."""
        rules: dict[type[Exception], Rule] = {}
        if isinstance(retry_on, Mapping):
            for kind, wait in retry_on.items():
                rules[kind] = _wait(_checked("retry_on", kind), wait)
        elif retry_on is not None:
            rules.update(dict.fromkeys(_classes("retry_on", retry_on)))
        for kind in () if reject_on is None else _classes("reject_on", reject_on):
            if kind in rules:
                raise checks.wrong("reject_on", f"has {kind.__qualname__}, which retry_on has too")
            rules[kind] = _REJECTED
        return cls(rules, others_rejected=retry_on is not None)

    def after(self, error: BaseException, attempt: int, spread: float) -> AfterFailure:
        """Return the outcome that follows *error* in attempt number *attempt*, the first being 1.

        *spread* is a random number in [0, 1), for the jitter.  What is no Exception, and a time
        limit that no class was declared for, are not the handler's: they are tried again.
        """
        if not isinstance(error, Exception):
            return _AS_THE_STRATEGY_SAYS
        for kind in type(error).__mro__:
            if kind in self.by_class:
                return _after(self.by_class[kind], attempt, spread)
        if self.others_rejected and not isinstance(error, SoftTimeLimit):
            return _NEVER
        return _AS_THE_STRATEGY_SAYS


def _after(rule: Rule, attempt: int, spread: float) -> AfterFailure:
    if rule is None:
        return _AS_THE_STRATEGY_SAYS
    if isinstance(rule, _Rejected):
        return _NEVER
    if not isinstance(rule, RetryStrategy):
        return AfterFailure(delay_in_seconds=rule)
    if attempt > rule.max_retries:
        return _NEVER
    return AfterFailure(delay_in_seconds=rule.delay_seconds(attempt, spread))


def _wait(kind: type[Exception], wait: Wait | None) -> Rule:
    name = f"retry_on[{kind.__qualname__}]"
    if wait is None:
        return None
    if isinstance(wait, RetryStrategy):
        return checks.retry_strategy(name, wait)
    return checks.seconds(name, wait, limits.DELAY_SECONDS)


def _classes(option: str, value: object) -> list[type[Exception]]:
    several = value if isinstance(value, tuple | list | set | frozenset) else [value]
    return [_checked(option, each) for each in several]


def _checked(option: str, kind: object) -> type[Exception]:
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise checks.wrong(option, f"must be exception classes, not {kind!r:.100}")
    if not issubclass(kind, Exception):
        raise checks.wrong(
            option, f"takes kinds of Exception, which {kind.__qualname__} is not: it is no failure"
        )
    if issubclass(kind, Retry | Reject | Snooze):
        raise checks.wrong(option, f"cannot change what {kind.__qualname__} means")
    return kind
