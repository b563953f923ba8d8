"""The real service filled as after a week, Chromium, and people who use it by keyboard."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser

from headrace.client.client import Client
from infra.launch import Launched, launched
from tests.browser.chrome import Window, chromium, deleted, dry_run, opened, signed_in
from tests.browser.fixtures import Fixtures, fill
from tests.browser.keyboard_user import KeyboardUser
from tests.browser.places import Names, names_of


@dataclass(frozen=True)
class Console:
    """A service with a console, and those who may sign in to it."""

    url: str
    admin_key: str
    client: Client
    fixtures: Fixtures
    cookies: dict[str, Any]  # by role: who is signed in
    names: Names


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Run one Chromium for all tests."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def service() -> Iterator[Launched]:
    """Run one service for all tests."""
    with launched() as running:
        yield running


@pytest.fixture(scope="session")
def console(service: Launched, browser: Browser) -> Iterator[Console]:
    """The console of a service that is filled with fixtures."""
    with Client(service.url, service.admin_key) as client:
        fixtures = fill(client)
        keys = {
            "admin": service.admin_key,
            "operator": fixtures.operator.secret,
            "viewer": fixtures.viewer.secret,
        }
        cookies = {role: signed_in(browser, service.url, key) for role, key in keys.items()}
        admin = cookies["admin"]
        names = names_of(
            fixtures,
            dry_run(browser, service.url, admin),
            deleted(browser, service.url, admin),
        )
        yield Console(service.url, service.admin_key, client, fixtures, cookies, names)


Enter = Callable[..., KeyboardUser]


@pytest.fixture
def enter(console: Console, browser: Browser) -> Iterator[Enter]:
    """Give what opens a window for somebody: by role, by default an admin without script.

    What the browser complains of, and what it shows as a dialog, fails the test at its end.
    """
    with contextlib.ExitStack() as windows:
        users: list[KeyboardUser] = []

        def open_window(
            role: str | None = "admin", *, script: bool = False, **how: Any
        ) -> KeyboardUser:
            state = console.cookies[role] if role else None
            window = Window(script=script, **how)
            context, page = windows.enter_context(opened(browser, window, state))
            users.append(KeyboardUser(context, page, console.url))
            return users[-1]

        yield open_window
        for user in users:
            assert user.complaints == []
