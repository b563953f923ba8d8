"""Values of options: durations, instants, rate limits, tags, JSON.

Each function is the ``type=`` of an option.  It returns the value, or raises BadParameter with an
example of a right one.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import IO, Any, Final, TextIO

import click

from headrace.domain import times

LOOPBACK: Final = "127.0.0.1"
_LAST_PORT: Final = 65_535
_AGO: Final = re.compile(r"([+-])(\S+)")


def seconds(text: str | float) -> float:
    """Read a duration: `30`, `30s`, `1.5m`, `1h30m`, `7d`; a number without a unit is seconds."""
    try:
        return times.read_duration(str(text))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def rate_limit(text: str) -> dict[str, Any]:
    """Read a rate limit: `50/s`, `100/10s`, `3000/m`, `10/h`; `none` is an empty one."""
    if text.strip().lower() == "none":
        return {}
    found = re.fullmatch(r"(\d+)\s*/\s*(\d*)\s*([smh])", text.strip().lower())
    if found is None:
        raise click.BadParameter(
            f"{text!r} must be a rate limit, for example 50/s, 100/10s, 3000/m or 10/h; or none"
        )
    units = {"s": "SECONDS", "m": "MINUTES", "h": "HOURS"}
    return {
        "max_tokens": int(found[1]),
        "interval": int(found[2] or 1),
        "interval_unit": units[found[3]],
    }


def groups(text: str) -> dict[str, Any]:
    """Read the mode of groups: `fair`, `fair:acme=4,beta=0.5`, `strict`; `none` is empty."""
    mode, _, rest = text.strip().partition(":")
    if mode.lower() == "none" and not rest:
        return {}
    weights: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        key, is_one, weight = part.rpartition("=")
        try:
            weights[key] = float(weight)
        except ValueError:
            is_one = ""
        if not (is_one and key):
            raise click.BadParameter(f"{part!r} must be a weight, for example acme=4")
    return {"mode": mode.lower(), "weights": weights}


def instant(text: str | datetime) -> datetime:
    """Read an instant: RFC 3339 with a time zone, or relative to now: `-1h`, `+5m`."""
    if isinstance(text, datetime):
        return text
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        length = timedelta(seconds=seconds(ago[2]))
        return datetime.now(UTC) + (length if ago[1] == "+" else -length)
    try:
        read = datetime.fromisoformat(text.strip())
    except ValueError:
        read = None
    if read is None or read.tzinfo is None:
        raise click.BadParameter(
            f"{text!r} must be an instant, for example 2026-11-21T08:00:00Z, -1h or +5m"
        )
    return read


def day(text: str | date) -> date:
    """Read a day in UTC: `2026-11-21`, or relative to today: `-30d`."""
    if isinstance(text, date):
        return text
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        ago = _AGO.fullmatch(text.strip())
    if ago is None or ago[1] == "+":
        raise click.BadParameter(f"{text!r} must be a day, for example 2026-11-21 or -30d")
    return instant(text).date()


def tag(text: str) -> tuple[str, str]:
    """Read a tag: `service=smartcity`."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{text!r} must be a tag, for example service=smartcity")
    return name, value


def tags_of(pairs: Sequence[tuple[str, str]]) -> dict[str, str] | None:
    """Return all --tag options as one mapping; None without any."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for name, _ in pairs if [one for one, _ in pairs].count(name) > 1)
        raise click.BadParameter(f"tag {twice} is given twice", param_hint="'--tag'")
    return found or None


def open_stdin() -> TextIO:
    """Return stdin.  Raises UsageError if it is closed (`<&-`)."""
    if sys.stdin is None:
        raise click.UsageError("there is nothing to read: stdin is closed")
    return sys.stdin


def json_of(name: str, text: str) -> Any:
    """Read the JSON in *text*, the value of *name*; - is stdin."""
    if text == "-":
        text = open_stdin().read()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = "" if re.match(r'\s*[\[{"\d-]', text) else "; JSON text needs double quotes: '\"…\"'"
        raise click.BadParameter(f"not JSON: {error}{hint}", param_hint=name) from error


class InputFile(click.File):
    """A file to read; - is stdin."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> IO[Any]:
        """Open it.  Raises UsageError if it cannot be opened."""
        if value == "-":
            open_stdin()
        return super().convert(value, param, ctx)


def json_object(stream: IO[str]) -> dict[str, Any]:
    """Read the JSON object in a file.  Raises BadParameter."""
    try:
        found = json.load(stream)
    except ValueError as error:
        raise click.BadParameter(f"{stream.name}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise click.BadParameter(f"{stream.name}: must hold a JSON object")
    return found


def on_end(text: str) -> dict[str, Any]:
    """Read `QUEUE` or `QUEUE:STATE,…`; `none` is empty."""
    if text == "none":
        return {}
    queue, named, states = text.partition(":")
    if not named:
        return {"queue": queue}
    return {"queue": queue, "states": [one.strip().upper() for one in states.split(",")]}


def assignment(text: str) -> tuple[tuple[str, ...], Any]:
    """Read `path.to.field=value`; the value is JSON, or text.

    The value of a setting in seconds may have a unit, as `5m`.
    """
    path, equals, value = text.partition("=")
    parts = tuple(path.split("."))
    if not (equals and all(parts)):
        raise click.BadParameter(
            f"{text!r} must be NAME=VALUE, for example retry_strategy.jitter=0.2"
        )
    try:
        return parts, json.loads(value)
    except (ValueError, RecursionError):
        return parts, seconds(value) if path.endswith("_seconds") else value


def put_at(fields: dict[str, Any], path: Sequence[str], value: object) -> None:
    """Set the field at *path*; missing objects on the way are created."""
    at = fields
    for part in path[:-1]:
        inner = at.get(part)
        at[part] = dict(inner) if isinstance(inner, Mapping) else {}
        at = at[part]
    at[path[-1]] = value


def listening(text: str) -> tuple[str, int]:
    """Read an address to listen on: `9000` (this machine only), `0.0.0.0:9000`, `[::]:9000`."""
    host, colon, port = text.strip().rpartition(":")
    known = port.isascii() and port.isdigit() and int(port) <= _LAST_PORT
    if not known or bool(host) != bool(colon):
        raise click.BadParameter(
            f"{text!r} must be a port or address, for example 9000 or 0.0.0.0:9000"
        )
    return host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port)


TIME: Final[dict[str, Any]] = {"type": seconds, "metavar": "TIME"}
"""Attributes of an option that is a duration."""

PRIORITY: Final[dict[str, Any]] = {"type": click.Choice(["high", "normal", "low"])}
"""Attributes of an option that is a priority."""

INSTANT: Final[dict[str, Any]] = {"type": instant, "metavar": "INSTANT"}
"""Attributes of an option that is an instant."""
