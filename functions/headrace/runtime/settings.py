"""What a deployment decides, read from the environment."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.domain.access import DEPLOYMENT
from headrace.domain.limits import OFFLOAD_BYTES, SETTINGS_TTL_SECONDS, WAIT_SECONDS
from headrace.domain.push import PushHosts, PushRules
from headrace.store.lake import s3_place

if TYPE_CHECKING:
    from headrace.store.dynamo import Sender


@dataclass(frozen=True)
class Settings:
    """The settings of a deployment.

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

    tasks_table: str = "headrace-tasks"
    control_table: str = "headrace-control"
    dynamodb_url: str | None = None
    admin_key: str | None = None
    admin_name: str = DEPLOYMENT
    poll_after_seconds: float = 1.0
    long_poll_seconds: float = WAIT_SECONDS
    settings_ttl_seconds: float = 10.0
    sender: "Sender" = "batch"
    session_secret: str | None = None
    lake: str | None = None
    lake_payloads: tuple[str, ...] = ()
    payloads: str | None = None
    payload_offload_bytes: int = 0
    metrics: str | None = None
    admin_key_arn: str | None = None
    session_secret_arn: str | None = None
    function: str | None = None
    tables_named: bool = False
    push: PushRules = field(default_factory=PushRules)
    dispatcher: str | None = None
    reaper: str | None = None
    insecure_cookies: bool = False

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> "Settings":
        """Read the ``HEADRACE_…`` variables.  Raises ValueError naming the one that is wrong."""
        sender = env.get("HEADRACE_SENDER", "batch")
        if sender not in ("batch", "single"):
            message = f"HEADRACE_SENDER must be batch or single, not {sender!r}"
            raise ValueError(message)
        named = [env.get(f"HEADRACE_{table}_TABLE") for table in ("TASKS", "CONTROL")]
        return cls(
            tasks_table=env.get("HEADRACE_TASKS_TABLE", cls.tasks_table),
            control_table=env.get("HEADRACE_CONTROL_TABLE", cls.control_table),
            dynamodb_url=env.get("HEADRACE_DYNAMODB_URL") or None,
            admin_key=env.get("HEADRACE_ADMIN_KEY") or None,
            poll_after_seconds=_seconds(env, "HEADRACE_POLL_AFTER_SECONDS", 1.0),
            long_poll_seconds=_seconds(
                env, "HEADRACE_LONG_POLL_SECONDS", WAIT_SECONDS, most=WAIT_SECONDS
            ),
            settings_ttl_seconds=_seconds(
                env, "HEADRACE_SETTINGS_TTL_SECONDS", 10.0, most=SETTINGS_TTL_SECONDS[1]
            ),
            session_secret=env.get("HEADRACE_SESSION_SECRET") or None,
            sender=sender,  # type: ignore[arg-type]  # checked above
            lake=_place(env, "HEADRACE_LAKE"),
            lake_payloads=_patterns(env, "HEADRACE_LAKE_PAYLOADS"),
            payloads=_place(env, "HEADRACE_PAYLOADS"),
            payload_offload_bytes=_offload_bytes(env),
            metrics=env.get("HEADRACE_METRICS") or None,
            admin_key_arn=env.get("HEADRACE_ADMIN_KEY_ARN") or None,
            session_secret_arn=env.get("HEADRACE_SESSION_SECRET_ARN") or None,
            function=env.get("AWS_LAMBDA_FUNCTION_NAME") or None,
            tables_named=all(named),
            push=_push(env),
            dispatcher=env.get("HEADRACE_DISPATCHER") or None,
            reaper=env.get("HEADRACE_REAPER") or None,
            insecure_cookies=env.get("HEADRACE_INSECURE_COOKIES") == "1",
        )

    def with_secrets(self, read: Callable[[str], str]) -> "Settings":
        """Return the same with the secrets that it only names; *read* gives one by its ARN."""
        admin_key, session_secret = self.admin_key, self.session_secret
        if admin_key is None and self.admin_key_arn is not None:
            admin_key = read(self.admin_key_arn)
        if session_secret is None and self.session_secret_arn is not None:
            session_secret = read(self.session_secret_arn)
        return replace(self, admin_key=admin_key, session_secret=session_secret)


def _seconds(env: Mapping[str, str], name: str, default: float, *, most: int = 3600) -> float:
    try:
        value = float(env.get(name, default))
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        message = f"{name} must be a number of seconds from 0 to {most}"
        raise ValueError(message)
    return value


def _push(env: Mapping[str, str]) -> PushRules:
    try:
        hosts = PushHosts.parse(env.get("HEADRACE_PUSH_HOSTS", ""))
    except ValueError as error:
        message = f"HEADRACE_PUSH_HOSTS {error}"
        raise ValueError(message) from error
    return PushRules(hosts, _patterns(env, "HEADRACE_PUSH_FUNCTIONS"))


def _place(env: Mapping[str, str], name: str) -> str | None:
    address = env.get(name, "").strip()
    try:
        s3_place(address)
    except ValueError as error:
        message = f"{name}: {error}"
        raise ValueError(message) from error
    return None if address in ("", "none") else address


def _offload_bytes(env: Mapping[str, str]) -> int:
    name, (least, most) = "HEADRACE_PAYLOAD_OFFLOAD_BYTES", OFFLOAD_BYTES
    given = env.get(name, "").strip() or "0"
    value = int(given) if given.isascii() and given.isdigit() else -1
    if value != 0 and not least <= value <= most:
        message = f"{name} must be 0, for none, or a whole number of bytes from {least} to {most}"
        raise ValueError(message)
    return value


def _patterns(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(pattern.strip() for pattern in env.get(name, "").split(",") if pattern.strip())
