"""Finding the app that `module:app` names."""

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.exits import Exit
from headrace.cli.session import Failed

if TYPE_CHECKING:
    from headrace.client.app.app import App


def load_app(name: str) -> "App":
    """Import the app that *name* says, as `shop.tasks:app`, with this folder on the path.

    Raises Failed that says what is missing.  An error inside the module comes out as it is.
    """
    from headrace.client.app.app import App  # noqa: PLC0415 (only two commands need one)

    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise Failed(f"{name!r} names no app: say module:app, as in shop.tasks:app", Exit.USAGE)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name != missing and not module_name.startswith(f"{missing}."):
            raise Failed(
                f"{module_name} needs the module {missing}, which is not installed here"
            ) from error
        raise Failed(
            f"there is no module {missing} in {here} nor among what is installed", Exit.USAGE
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            apps = [name for name, value in vars(found).items() if isinstance(value, App)]
            instead = f"; its apps: {', '.join(apps)}" if apps else "; it holds no App"
            raise Failed(f"{module_name} has no {attribute}{instead}", Exit.USAGE)
        found = getattr(found, part)
    if not isinstance(found, App):
        raise Failed(f"{name} is no App but of type {type(found).__name__}", Exit.USAGE)
    return found
