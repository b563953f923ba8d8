"""The dedupe keys that a task declares: made of the arguments of each call."""

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any, Literal, TypeAlias

from headrace.client.app import checks
from headrace.client.app.signature import Signature
from headrace.domain.task_fields import FIELD

DedupeKey: TypeAlias = str | Callable[..., str | None] | Literal[True]
Key: TypeAlias = Callable[[Mapping[str, Any]], str | None]


def key_maker(dedupe_key: DedupeKey | None, task: str, signature: Signature) -> Key:
    """Return a function from named arguments to the dedupe key; defaults count as given.

    Raises TypeError for a format or function that asks for what is no argument.
    """
    if dedupe_key is None:
        return lambda _args: None
    if dedupe_key is True:
        return lambda args: _digest(task, signature.plain({**signature.defaults, **args}))
    if isinstance(dedupe_key, str):
        _known(signature, _asked(dedupe_key))
        template = dedupe_key
        return lambda args: template.format(**{**signature.defaults, **args})
    if not callable(dedupe_key):
        raise TypeError(f"dedupe_key must be a format, a function or True, not {dedupe_key!r}")
    return _called(dedupe_key, signature)


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
        return None if found is None else checks.text("dedupe_key", found, FIELD["dedupe_key"])

    return key


def _digest(task: str, args: Mapping[str, Any]) -> str:
    text = json.dumps([task, args], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _asked(template: str) -> set[str]:
    """Return the arguments that a format asks for.  Raises TypeError for what is no format."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise TypeError(
            f'dedupe_key must be a format, as "mail:{{to}}", and {template!r:.140} is none:'
            f" {error}; a brace itself is written {{{{ or }}}}"
        ) from None
    return {_root(name) for _, name, _, _ in parts if name is not None}


def _root(field: str) -> str:
    """Return the argument that a field of a format begins with, as ``to`` of ``to.address[0]``."""
    return field.partition(".")[0].partition("[")[0]


def _known(signature: Signature, names: set[str]) -> None:
    unknown = sorted(names - signature.hints.keys())
    if unknown:
        raise TypeError(f"dedupe_key asks for {', '.join(unknown)!r}, no argument of {signature}")
