"""Every declared queue setting: the API, SDK and CLI take it, show it and refuse what is beyond."""

import json
from typing import Any, get_type_hints

import pytest

from headrace import App
from headrace.client.queue_fields import QueueFields
from headrace.domain.errors import InvalidRequest
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.settings import Kind, Setting, declared_settings
from headrace.testing import MemoryService
from headrace.wire.queues import Queue
from tests.unit.cli.cli_runner import Cli

SETTINGS = declared_settings(QueueSettings)
every_setting = pytest.mark.parametrize(
    "setting", SETTINGS, ids=[".".join(one.path) for one in SETTINGS]
)
every_limited_setting = pytest.mark.parametrize(
    "setting",
    [one for one in SETTINGS if one.kind not in (Kind.FLAG, Kind.WORD)],
    ids=lambda one: ".".join(one.path),
)


def another(setting: Setting) -> Any:
    """Return a value that is not the default: the largest one where there are limits."""
    match setting.kind:
        case Kind.TEXT:
            return "x" * int(setting.within[1])
        case Kind.FLAG:
            return not setting.default
        case Kind.WORD:
            return next(str(one) for one in setting.words or () if one != setting.default)
    return setting.within[1]


def too_large(setting: Setting) -> Any:
    value = another(setting)
    return f"{value}x" if setting.kind is Kind.TEXT else value + 1


def body_of(setting: Setting, value: Any) -> dict[str, Any]:
    for name in reversed(setting.path):
        value = {name: value}
    body: dict[str, Any] = value
    return body


@every_setting
def test_the_api_takes_and_shows_it(setting: Setting) -> None:
    value = another(setting)
    with MemoryService() as service:
        service.client.create_queue("mail")
        service.client.edit_queue("mail", **body_of(setting, value))
        assert setting.value_in(service.client.get_queue("mail")) == value


@every_limited_setting
def test_the_api_and_the_sdk_name_it_beyond_its_limit(setting: Setting) -> None:
    path, body = ".".join(setting.path), body_of(setting, too_large(setting))
    with MemoryService() as service, pytest.raises(InvalidRequest) as refused:
        service.client.create_queue("mail", **body)
    assert [one.field for one in refused.value.errors] == [path]

    with pytest.raises(InvalidRequest, match=rf"^queue mail: {path} must be "):
        App().queue("mail", **body)


@every_setting
def test_the_command_sets_and_shows_it(setting: Setting) -> None:
    value = another(setting)
    words = ["--set", f"{'.'.join(setting.path)}={json.dumps(value)}"]
    with MemoryService() as service:
        assert Cli(service)("queue", "create", "mail", *words).code == 0
        found: Any = Cli(service)("queue", "show", "mail", "--json").json
        for name in setting.path:
            found = found[name]
        assert found == value
        assert ".".join(setting.path) in Cli(service)("queue", "show", "mail").out


def test_type_checkers_know_every_setting() -> None:
    named = set(get_type_hints(QueueSettings))

    assert set(get_type_hints(QueueFields)) == named
    assert named <= set(Queue.__struct_fields__)
