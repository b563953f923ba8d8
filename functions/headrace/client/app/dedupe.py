"""From ``dedupe=`` to the key of one call: a format, a function of the arguments, or a digest."""

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any, Literal, TypeAlias

from headrace.client.app import checks
from headrace.client.app.signature import Signature

Dedupe: TypeAlias = str | Callable[..., str | None] | Literal[True]
Key: TypeAlias = Callable[[Mapping[str, Any]], str | None]


def key_maker(dedupe: Dedupe | None, task: str, signature: Signature) -> Key:
    """A function from named arguments to the dedupe key; defaults count as given.

    Raises TypeError for a format or function that asks for what is no argument.
    """
    if dedupe is None:
        return lambda _args: None
    if dedupe is True:
        return lambda args: _digest(task, signature.plain({**signature.defaults, **args}))
    if isinstance(dedupe, str):
        _known(
            signature,
            {_root(name) for _, name, _, _ in Formatter().parse(dedupe) if name is not None},
        )
        template = dedupe
        return lambda args: template.format(**{**signature.defaults, **args})
    if not callable(dedupe):
        raise TypeError(f"dedupe must be a format, a function or True, not {dedupe!r}")
    return _called(dedupe, signature)


def _called(function: Callable[..., str | None], signature: Signature) -> Key:
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        wanted = set(signature.hints)
    else:
        wanted = {each.name for each in parameters}
        _known(signature, wanted)

    def key(args: Mapping[str, Any]) -> str | None:
        given = {**signature.defaults, **args}
        found = function(**{name: value for name, value in given.items() if name in wanted})
        return None if found is None else checks.key("dedupe", found)

    return key


def _digest(task: str, args: Mapping[str, Any]) -> str:
    text = json.dumps([task, args], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _root(field: str) -> str:
    """Return the argument that a field of a format begins with, as ``to`` of ``to.address[0]``."""
    return field.partition(".")[0].partition("[")[0]


def _known(signature: Signature, names: set[str]) -> None:
    unknown = sorted(names - signature.hints.keys())
    if unknown:
        raise TypeError(f"dedupe asks for {', '.join(unknown)!r}, no argument of {signature}")
