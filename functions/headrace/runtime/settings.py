"""What a deployment decides, read from the environment."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.domain.access import DEPLOYMENT
from headrace.domain.limits import OFFLOAD_BYTES, SETTINGS_TTL_SECONDS, WAIT_SECONDS
from headrace.domain.push import PushHosts, PushRules
from headrace.store.lake import s3_place

if TYPE_CHECKING:
    from headrace.store.dynamo import Sender

_VARIABLE: Final = "variable"
_READ: Final = "read"


def _from(variable: str, default: object, read: Callable[[str], object] = str) -> Any:  # noqa: ANN401  of any type
    """Return a field that *read* makes from the text of *variable*; *default* without a text."""
    return field(default=default, metadata={_VARIABLE: variable, _READ: read})


def _seconds(most: float = 3600) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= most:
            raise ValueError(f"must be a number of seconds from 0 to {most:g}")
        return value

    return read


def _sender(text: str) -> str:
    if text not in ("batch", "single"):
        raise ValueError(f"must be batch or single, not {text!r}")
    return text


def _place(text: str) -> str | None:
    s3_place(text)
    return None if text == "none" else text


def _offload_bytes(text: str) -> int:
    least, most = OFFLOAD_BYTES
    value = int(text) if text.isascii() and text.isdigit() else -1
    if value != 0 and not least <= value <= most:
        raise ValueError(f"must be 0, for none, or a whole number of bytes from {least} to {most}")
    return value


def _patterns(text: str) -> tuple[str, ...]:
    return tuple(pattern.strip() for pattern in text.split(",") if pattern.strip())


@dataclass(frozen=True)
class Settings:
    """The settings of a deployment; most are read from a variable of the environment.

    ``dynamodb_url`` None is Amazon DynamoDB.  Without an ``admin_key`` there is no deployment
    key; the audit shows its holder as ``admin_name``.  ``session_secret`` signs the console's
    sessions, None without a console.  ``sender`` is how changes are sent (see DynamoStore).

    ``long_poll_seconds`` is the longest time that a request may wait in the service.

    ``lake`` is the place of raw changes, a folder or ``s3://bucket/prefix``; ``lake_payloads`` are
    patterns of the queues whose payloads are written there too.  ``payloads`` is the place of texts
    of tasks with more than ``payload_offload_bytes``, 0 for none; a folder or
    ``s3://bucket/prefix``, and for a file always a folder beside it.

    ``metrics`` is the stack that metrics are about, None for no metrics.  The two that end in
    ``_arn`` name secrets for `with_secrets`.  ``function`` is the name of the current Lambda
    function, None elsewhere.

    ``push`` are the rules for targets; ``dispatcher`` is the function that sends to targets, None
    if this process does.  ``reaper`` is the function that works on actions, None if this process
    does.  ``insecure_cookies`` lets people sign in to the console over plain http.
    ``tables_named`` is whether the names of the tables were given, or are the defaults of a local
    machine.
    """

    tasks_table: str = _from("HEADRACE_TASKS_TABLE", "headrace-tasks")
    control_table: str = _from("HEADRACE_CONTROL_TABLE", "headrace-control")
    dynamodb_url: str | None = _from("HEADRACE_DYNAMODB_URL", None)
    admin_key: str | None = _from("HEADRACE_ADMIN_KEY", None)
    admin_name: str = DEPLOYMENT
    poll_after_seconds: float = _from("HEADRACE_POLL_AFTER_SECONDS", 1.0, _seconds())
    long_poll_seconds: float = _from(
        "HEADRACE_LONG_POLL_SECONDS", WAIT_SECONDS, _seconds(WAIT_SECONDS)
    )
    settings_ttl_seconds: float = _from(
        "HEADRACE_SETTINGS_TTL_SECONDS", 10.0, _seconds(SETTINGS_TTL_SECONDS[1])
    )
    sender: "Sender" = _from("HEADRACE_SENDER", "batch", _sender)  # noqa: RUF009  a field
    session_secret: str | None = _from("HEADRACE_SESSION_SECRET", None)
    lake: str | None = _from("HEADRACE_LAKE", None, _place)
    lake_payloads: tuple[str, ...] = _from("HEADRACE_LAKE_PAYLOADS", (), _patterns)
    payloads: str | None = _from("HEADRACE_PAYLOADS", None, _place)
    payload_offload_bytes: int = _from("HEADRACE_PAYLOAD_OFFLOAD_BYTES", 0, _offload_bytes)
    metrics: str | None = _from("HEADRACE_METRICS", None)
    admin_key_arn: str | None = _from("HEADRACE_ADMIN_KEY_ARN", None)
    session_secret_arn: str | None = _from("HEADRACE_SESSION_SECRET_ARN", None)
    function: str | None = _from("AWS_LAMBDA_FUNCTION_NAME", None)
    tables_named: bool = False
    push: PushRules = field(default_factory=PushRules)
    dispatcher: str | None = _from("HEADRACE_DISPATCHER", None)
    reaper: str | None = _from("HEADRACE_REAPER", None)
    insecure_cookies: bool = _from("HEADRACE_INSECURE_COOKIES", False, lambda text: text == "1")  # noqa: FBT003  by place

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> "Settings":
        """Read the variables.  Raises ValueError that names the variable that is wrong."""
        given = {
            one.name: _read(one.metadata[_VARIABLE], one.metadata[_READ], text)
            for one in fields(cls)
            if _VARIABLE in one.metadata and (text := env.get(one.metadata[_VARIABLE], "").strip())
        }
        hosts = _read("HEADRACE_PUSH_HOSTS", PushHosts.parse, env.get("HEADRACE_PUSH_HOSTS", ""))
        push = PushRules(hosts, _patterns(env.get("HEADRACE_PUSH_FUNCTIONS", "")))
        named = "tasks_table" in given and "control_table" in given
        return cls(**given, tables_named=named, push=push)

    def with_secrets(self, read: Callable[[str], str]) -> "Settings":
        """Return the same with the secrets that it only names; *read* gives one by its ARN."""
        admin_key, session_secret = self.admin_key, self.session_secret
        if admin_key is None and self.admin_key_arn is not None:
            admin_key = read(self.admin_key_arn)
        if session_secret is None and self.session_secret_arn is not None:
            session_secret = read(self.session_secret_arn)
        return replace(self, admin_key=admin_key, session_secret=session_secret)


def _read(variable: str, read: Callable[[str], Any], text: str) -> Any:  # noqa: ANN401  of any type
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"{variable} {error}") from error
