"""An outbox by what names its database: a URL of SQLAlchemy's, or the settings of Django's."""

from typing import Final

from headrace.domain.errors import InvalidRequest
from headrace.outbox.table import TABLE, OutboxTable

DJANGO: Final = "django:"


def packages_of(database: str) -> tuple[str, str]:
    """Return the package that *database* needs, and the extra that brings it."""
    name = "django" if database.startswith(DJANGO) else "sqlalchemy"
    return name, f"'headrace[{name}]'"


def open_outbox(database: str, *, name: str = TABLE, schema: str | None = None) -> OutboxTable:
    """Return the outbox in *database*: ``postgresql://user@host/shop``, ``django:shop.settings``.

    Raises InvalidRequest, which does not show a URL, if there can be none.
    """
    if database.startswith(DJANGO):
        if (name, schema) != (TABLE, None):
            raise InvalidRequest.of("table", "is Django's to name: its model does")
        from headrace.outbox.django.table import open_settings  # noqa: PLC0415 (an extra)

        return open_settings(database.removeprefix(DJANGO))
    from headrace.outbox.sqlalchemy.table import open_url  # noqa: PLC0415 (likewise)

    return open_url(database, name=name, schema=schema)
