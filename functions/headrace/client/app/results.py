"""What is kept of what a handler returns: up to 32 KiB of JSON, or what the task says instead."""

from typing import Any, Final, Literal, TypeAlias

from headrace.client.app import checks
from headrace.client.codec import PLAIN, Codec
from headrace.client.sending import carried
from headrace.domain import limits
from headrace.domain.errors import PayloadTooLarge

OnLargeResult: TypeAlias = Literal["truncate", "drop"]

_CHOICES: Final = ("truncate", "drop")
_MARK: Final = "… [cut]"


def checked(value: OnLargeResult | None) -> OnLargeResult | None:
    """Return *value* if it may be chosen; None is: fail.  Raises InvalidRequest."""
    if value is None or value in _CHOICES:
        return value
    raise checks.wrong("on_large_result", f"must be one of {', '.join(_CHOICES)}, not {value!r}")


def kept(result: object, codec: Codec, choice: OnLargeResult | None) -> tuple[Any, str]:
    """The part of *result* that is kept, and why it is not all of it, if it is not.

    Raises PayloadTooLarge for one over the limit unless there is a *choice*, InvalidRequest for one
    that is no JSON, and whatever a codec of somebody else's does.
    """
    if result is None:
        return None, ""
    try:
        # As it is now, whatever becomes of it.
        return codec.decode(bytes(_carried(result, codec))), ""
    except PayloadTooLarge as error:
        if choice is None:
            raise
        why = error.errors[0].message
    return (None if choice == "drop" else _truncated(result, codec, why)), why


def _truncated(result: object, codec: Codec, why: str) -> object:
    """Return as much of the beginning of *result* as fits: of a text that, of else its JSON."""
    text = result if isinstance(result, str) else PLAIN.encode(result).decode()
    low, high = 0, min(len(text), limits.RESULT_BYTES)
    while low < high:
        middle = (low + high + 1) // 2
        if _fits(_beginning(result, text, middle, why), codec):
            low = middle
        else:
            high = middle - 1
    return _beginning(result, text, low, why)


def _beginning(result: object, text: str, length: int, why: str) -> object:
    beginning = text[:length] + _MARK
    if isinstance(result, str):
        return beginning
    return {"headrace": f"result truncated: it {why}", "beginning": beginning}


def _fits(value: object, codec: Codec) -> bool:
    try:
        _carried(value, codec)
    except PayloadTooLarge:
        return False
    return True


def _carried(value: object, codec: Codec) -> Any:  # noqa: ANN401 (text in a wrapper of msgspec's)
    return carried(value, codec, field="result", most=limits.RESULT_BYTES)
