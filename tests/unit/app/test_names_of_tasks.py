"""Names of task functions that no worker, or no other worker, can find."""

import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from headrace import App
from headrace.testing import MemoryService
from tests.unit.app.app_runner import call, run


def typed(app: App, name: str | None = None) -> ModuleType:
    """Return a module like what is typed into Python, which is no file."""
    module = ModuleType("__main__")
    module.__dict__.update(app=app, name=name)
    exec("def hello(n: int) -> None: ...\nhello = app.task(name=name)(hello)", module.__dict__)  # noqa: S102
    return module


def test_the_first_enqueue_of_what_is_in_no_file_says_that_no_other_process_knows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    ways: tuple[Callable[[Any], object], ...] = (
        lambda task: task.enqueue(1),
        lambda task: task.s(1),
        lambda task: task.enqueue_many([{"n": 1}]),
    )
    for way in ways:
        with MemoryService() as service:
            hello = typed(App(service.client)).hello
            with pytest.warns(UserWarning, match=r"named __main__\.hello.*@app\.task\(name=…\)"):
                way(hello)
            with warnings.catch_warnings(action="error"):
                hello.enqueue(2)
                typed(App(service.client), "shop.hello").hello.enqueue(1)


def message(app: App, name: str) -> str:
    """Return what is said of a task that asks for *name*."""
    (error,) = run(app, call(name)).errors
    assert error.type == "UnknownTask"
    return error.message


def outer() -> None:
    """Stand for a function with a task in it, which never runs."""


def test_an_unknown_task_says_what_may_be_meant() -> None:
    app = App()
    for name in ("pkg.sub.mod.hello", "hello", "pkg.other"):
        app.task(name=name)(lambda: None)
    app.queue("mail", work=True)

    assert message(app, "mod.hello").startswith(
        "no task here is named 'mod.hello': did you mean hello or pkg.sub.mod.hello? "
    )
    app = App()
    app.queue("mail", work=True)
    assert f"inside the function {__name__}.outer, which has to run" in message(
        app, f"{__name__}.outer.inner"
    )
    assert "typed or piped into a program" in message(app, "__main__.hello")
    assert "import the module that declares it" in message(app, "gone")
    assert message(app, "other.app").endswith(
        "If another app enqueues into queue mail, give each app its own queue: apps that share one"
        " fail each other's tasks"
    )
    assert '@app.handler(queue="mail")' in run(app, {"x": 1}).errors[0].message


def test_a_call_of_an_unknown_task_never_goes_to_the_raw_handler_of_its_queue() -> None:
    app, seen = App(), list[object]()

    @app.handler(queue="mail")
    def note(payload: object) -> None:
        seen.append(payload)

    assert "no task here is named 'mail.renamed'" in message(app, "mail.renamed")
    assert seen == []
    for data in ({"to": "ada"}, {"task": "water the plants"}, [1], "text"):
        assert run(app, data).state == "SUCCEEDED"
    assert len(seen) == 4
