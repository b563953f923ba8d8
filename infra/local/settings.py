"""The settings that the local service takes from its environment."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from infra.local.errors import SettingInvalid
from infra.local.folder import is_key

DEFAULT_PORT: Final = 8080
DEFAULT_DATA_DIR: Final = ".headrace"
_LAST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Where and with what the service runs.

    Attributes:
        port: to listen on; 0 is any free one.
        data_dir: a folder, or `:memory:` to keep nothing.
        admin_key: None makes one and keeps it in the data folder.
        dynamodb_url: an endpoint to use in place of the embedded engine.

    """

    port: int = DEFAULT_PORT
    data_dir: str = DEFAULT_DATA_DIR
    admin_key: str | None = None
    dynamodb_url: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            SettingInvalid: names the variable it comes from.

        """
        if not 0 <= self.port <= _LAST_PORT:
            raise SettingInvalid(f"HEADRACE_PORT must be 0 to {_LAST_PORT}, not {self.port}.")
        if self.admin_key is not None and not is_key(self.admin_key):
            raise SettingInvalid(
                "HEADRACE_ADMIN_KEY must be 16 to 256 visible ASCII characters; leave it out to"
                " have one made."
            )
        if self.dynamodb_url is not None and not re.fullmatch(r"https?://\S+", self.dynamodb_url):
            raise SettingInvalid(
                f"HEADRACE_DYNAMODB_URL must be an http or https address, not {self.dynamodb_url}."
            )


def settings_from(environment: Mapping[str, str] = os.environ) -> LocalSettings:
    """Read the settings; an empty variable counts as not set.

    Raises:
        SettingInvalid: one of them cannot be used.

    """
    port = environment.get("HEADRACE_PORT") or str(DEFAULT_PORT)
    if not re.fullmatch(r"[0-9]{1,5}", port):
        raise SettingInvalid(f"HEADRACE_PORT must be a port number, not {port!r}.")
    return LocalSettings(
        port=int(port),
        data_dir=environment.get("HEADRACE_DATA_DIR") or DEFAULT_DATA_DIR,
        admin_key=environment.get("HEADRACE_ADMIN_KEY") or None,
        dynamodb_url=environment.get("HEADRACE_DYNAMODB_URL") or None,
    )
