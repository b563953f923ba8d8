"""The settings of the service from its environment, and the environment of API and console."""

import contextlib
import hashlib
import hmac
import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.local import SettingInvalid
from headrace.local.folder import is_key
from headrace.local.proxies import TrustedProxies, networks
from headrace.local.tables import DynamoDBClient, TableNames

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8080
DEFAULT_DATA_DIR: Final = ".headrace"
_LAST_PORT: Final = 65535
# A path that begins like one of ours could be read in two ways.
_ROOT_PATH: Final = re.compile(
    r"(?!/(v1|v2|console|management|metrics)(/|$))(/[0-9A-Za-z._~-]{1,100}){0,10}"
)
_LOOPBACK_OF: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (an address to reach, not to listen on)
_REGION: Final = "us-east-1"
# An emulator takes any credentials; without some, botocore would search for real ones.
_DUMMY_CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_SESSION_TOKEN": None,
    "AWS_PROFILE": None,
}
# Polling costs nothing here, and changed settings should have an effect soon.
_DEFAULTS: Final = {
    "HEADRACE_POLL_AFTER_SECONDS": "0.02",
    "HEADRACE_SETTINGS_TTL_SECONDS": "1",
    "POWERTOOLS_SERVICE_NAME": "headrace",
    "POWERTOOLS_LOG_LEVEL": "WARNING",
}


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """The settings of the service.

    Attributes:
        port: the port to listen on; 0 is any free one.
        host: the name or address of this machine to listen on; by default only this machine.
        data_dir: a folder, or `:memory:` for a service whose data ends with it.
        admin_key: None creates a key and stores it in the data folder.
        dynamodb_url: an endpoint of DynamoDB to use instead of the file.
        root_path: the path in front of every URL, as /tools/queue; empty for none.
        trusted_proxies: addresses and networks, separated by commas, whose X-Forwarded headers are
            honoured.
        insecure_cookies: whether the console's sign-in works over plain http from other machines.

    """

    port: int = DEFAULT_PORT
    data_dir: str = DEFAULT_DATA_DIR
    admin_key: str | None = None
    dynamodb_url: str | None = None
    host: str = DEFAULT_HOST
    root_path: str = ""
    trusted_proxies: str = ""
    insecure_cookies: bool = False

    def __post_init__(self) -> None:
        """Raise SettingInvalid for a wrong value; the error names its variable."""
        if not 0 <= self.port <= _LAST_PORT:
            raise SettingInvalid(f"HEADRACE_PORT must be 0 to {_LAST_PORT}, not {self.port}.")
        if not re.fullmatch(r"[0-9A-Za-z.:_%-]{1,253}", self.host):
            raise SettingInvalid(
                f"HEADRACE_HOST must be a name or an address of this machine, not {self.host!r}."
            )
        if not _ROOT_PATH.fullmatch(self.root_path):
            raise SettingInvalid(
                "HEADRACE_ROOT_PATH must be a path such as /tools/queue that does not begin with a"
                f" path of the service, not {self.root_path!r}."
            )
        try:
            networks(self.trusted_proxies)
        except ValueError as error:
            raise SettingInvalid(
                "HEADRACE_TRUSTED_PROXIES must be addresses or networks, separated by commas, as"
                f" 10.0.0.5,192.168.0.0/16: {error}."
            ) from error
        if self.admin_key is not None and not is_key(self.admin_key):
            raise SettingInvalid(
                "HEADRACE_ADMIN_KEY must be 16 to 256 visible ASCII characters; leave it out to"
                " have one made."
            )
        if self.dynamodb_url is not None and not re.fullmatch(r"https?://\S+", self.dynamodb_url):
            raise SettingInvalid(
                f"HEADRACE_DYNAMODB_URL must be an http or https address, not {self.dynamodb_url}."
            )

    @property
    def proxies(self) -> TrustedProxies:
        """The trusted proxies."""
        return TrustedProxies(networks(self.trusted_proxies))

    @property
    def at(self) -> str:
        """The host in a URL, for programs on this machine."""
        near = _LOOPBACK_OF.get(self.host, self.host)
        return f"[{near}]" if ":" in near else near

    @property
    def open_to_others(self) -> bool:
        """Whether other machines may reach the service."""
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"


def settings_from(environment: Mapping[str, str] = os.environ) -> LocalSettings:
    """Return the settings; an empty variable counts as not set.  Raises SettingInvalid."""
    return LocalSettings(
        port=_number(environment, "HEADRACE_PORT", DEFAULT_PORT),
        data_dir=environment.get("HEADRACE_DATA_DIR") or DEFAULT_DATA_DIR,
        admin_key=environment.get("HEADRACE_ADMIN_KEY") or None,
        dynamodb_url=environment.get("HEADRACE_DYNAMODB_URL") or None,
        host=environment.get("HEADRACE_HOST") or DEFAULT_HOST,
        root_path=(environment.get("HEADRACE_ROOT_PATH") or "").rstrip("/"),
        trusted_proxies=environment.get("HEADRACE_TRUSTED_PROXIES") or "",
        insecure_cookies=_switch(environment, "HEADRACE_INSECURE_COOKIES"),
    )


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name) or str(default)
    if not re.fullmatch(r"-?[0-9]{1,5}", text):
        raise SettingInvalid(f"{name} must be a number, not {text!r}.")
    return int(text)


def _switch(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name) or "0"
    if text not in ("0", "1"):
        raise SettingInvalid(f"{name} must be 1 or 0, not {text!r}.")
    return text == "1"


def function_environment(
    *, url: str | None, names: TableNames, admin_key: str, lake: Path | None = None
) -> dict[str, str | None]:
    """Return the variables that the API and the console need; None is an unset variable.

    Raw changes go to `lake` unless the environment names another place.  Calls to a DynamoDB at
    `url` use the credentials of the environment, or dummy ones without any.
    """
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _REGION
    credentials = _DUMMY_CREDENTIALS if url is not None and not _has_credentials() else {}
    return {
        **{name: os.environ.get(name, value) for name, value in _DEFAULTS.items()},
        **credentials,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "HEADRACE_DYNAMODB_URL": url,
        "HEADRACE_TASKS_TABLE": names.tasks,
        "HEADRACE_CONTROL_TABLE": names.control,
        "HEADRACE_ADMIN_KEY": admin_key,
        "HEADRACE_SESSION_SECRET": _session_secret(admin_key),
        "HEADRACE_LAKE": os.environ.get("HEADRACE_LAKE") or (str(lake) if lake else None),
    }


@contextlib.contextmanager
def applied(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Change this process's environment for the length of a with block."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def dynamodb_client(url: str) -> DynamoDBClient:
    """Return a client that creates tables, with the environment's settings."""
    from botocore.config import Config  # noqa: PLC0415  a service on a file needs no botocore
    from botocore.session import get_session  # noqa: PLC0415  as above

    # By default botocore tries ten times, so a wrong address would be reported a minute later.
    config = Config(connect_timeout=3, retries={"total_max_attempts": 2})
    return get_session().create_client("dynamodb", endpoint_url=url, config=config)


def _session_secret(admin_key: str) -> str:
    """Derive the secret of the console's sessions, so that they outlive a restart."""
    return hmac.new(admin_key.encode(), b"headrace console sessions", hashlib.sha256).hexdigest()


def _has_credentials() -> bool:
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415  see dynamodb_client
    from botocore.session import get_session  # noqa: PLC0415  as above

    try:
        return get_session().get_credentials() is not None
    except BotoCoreError:
        return False


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
