"""The table of an outbox in a database of Django."""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import django
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import Error, connections, transaction
from django.db.models import Count, F, Min, Q
from django.utils import timezone

from headrace.client.settings import utc_now
from headrace.domain.errors import InvalidRequest, NotFound, Unavailable
from headrace.outbox.django.apps import LABEL
from headrace.outbox.table import (
    ERROR_LENGTH,
    TABLE,
    NewRow,
    OutboxRow,
    OutboxState,
    Send,
    SettledRows,
    read_rows,
)

Rows: TypeAlias = Any
"""Some of the table's rows, a QuerySet: Django has no types."""

T = TypeVar("T")

_DEFAULT = "default"


class DjangoTable:
    """The table of an outbox in one of Django's databases: see `headrace.outbox.table.OutboxTable`.

    Raises InvalidRequest where the app is not installed.
    """

    def __init__(self, using: str = _DEFAULT, *, now: Callable[[], datetime] = utc_now) -> None:
        try:
            self._model: Any = apps.get_model(LABEL, "OutboxEntry")
        except LookupError:
            raise InvalidRequest.of(
                "outbox", "needs the app: add headrace.outbox.django to INSTALLED_APPS"
            ) from None
        self._using, self._now = using, now
        self.name = f"{TABLE} of Django's database {using}"

    @property
    def _all(self) -> Rows:
        return self._model.objects.using(self._using)

    def insert(self, rows: Sequence[NewRow]) -> None:
        """Write rows in the transaction that is open.  Raises what Django does."""
        self._all.bulk_create(
            self._model(**asdict(row) | {"created_at": _stored(row.created_at)}) for row in rows
        )

    def settle(self, limit: int, without: Collection[str], send: Send) -> Sequence[OutboxRow]:
        """Send waiting rows, in one transaction if the database locks rows."""
        waiting = self._all.filter(refused_at=None).exclude(queue__in=without).order_by("seq")
        with self._errors():
            if connections[self._using].features.has_select_for_update_skip_locked:
                with transaction.atomic(using=self._using):
                    rows = read_rows(waiting.select_for_update(skip_locked=True)[:limit], _read)
                    self._write(rows, send(rows))
                return rows
            rows = read_rows(waiting[:limit], _read)
            if rows:
                settled = send(rows)
                with transaction.atomic(using=self._using):
                    self._write(rows, settled)
            return rows

    def state(self) -> OutboxState:
        """Count the rows."""
        waits = Q(refused_at=None)
        with self._errors():
            found = self._all.aggregate(
                waiting=Count("seq", filter=waits),
                refused=Count("refused_at"),
                oldest=Min("created_at", filter=waits),
            )
        return OutboxState(found["waiting"], found["refused"], _read(found["oldest"]))

    def rows(
        self,
        *,
        refused: bool = False,
        ids: Collection[str] | None = None,
        limit: int | None = None,
    ) -> list[OutboxRow]:
        """Return rows in order, or only those refused, or those of the tasks named."""
        which = self._all.order_by("seq")
        if refused:
            which = which.exclude(refused_at=None)
        if ids is not None:
            which = which.filter(task_id__in=ids)
        with self._errors():
            return read_rows(which[:limit], _read)

    def retry(self, ids: Collection[str] | None = None) -> int:
        """Let refused rows wait again: those of the tasks named, or all."""
        which = self._all.exclude(refused_at=None)
        if ids is not None:
            which = which.filter(task_id__in=ids)
        with self._errors():
            return int(which.update(refused_at=None))

    def delete(self, ids: Collection[str]) -> int:
        """Delete the rows of the tasks named."""
        with self._errors():
            return int(self._all.filter(task_id__in=ids).delete()[0])

    def create(self) -> None:
        """Create the table, by its migration."""
        with self._errors():
            call_command("migrate", LABEL, database=self._using, verbosity=0)

    def close(self) -> None:
        """Close this thread's connection."""
        connections[self._using].close()

    def _write(self, rows: Sequence[OutboxRow], settled: SettledRows) -> None:
        for fault, some in settled.by_fault(rows).items():
            if fault is None:
                self._these(some).delete()
            else:
                self._these(some).update(
                    attempts=F("attempts") + 1,
                    error=fault.error[:ERROR_LENGTH],
                    refused_at=_stored(self._now()) if fault.refused else None,
                )

    def _these(self, rows: Sequence[OutboxRow]) -> Rows:
        """Return *rows* as a query; without locks, a number may be that of another row now."""
        return self._all.filter(
            seq__in=[row.seq for row in rows], task_id__in=[row.task_id for row in rows]
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Use the connection as a request would.  Raises NotFound, Unavailable."""
        connections[self._using].close_if_unusable_or_obsolete()
        try:
            yield
        except Error as error:
            if self._is_missing():
                raise NotFound(
                    f"there is no table {TABLE}: create it with `manage.py migrate`"
                ) from None
            first = (str(error).splitlines() or [type(error).__name__])[0]
            text = f"the database of the outbox cannot be used: {first}"
            raise Unavailable(text) from None  # the statement names what is in the rows
        finally:
            connections[self._using].close_if_unusable_or_obsolete()

    def _is_missing(self) -> bool:
        try:
            return TABLE not in connections[self._using].introspection.table_names()
        except Error:
            return False


def _stored(moment: datetime) -> datetime:
    """Return *moment* as Django wants it: without a zone if ``USE_TZ`` is off."""
    if settings.USE_TZ:
        return moment
    return timezone.make_naive(moment, timezone.get_default_timezone())  # type: ignore[no-any-return]  # it has no types


def _read(moment: datetime | None) -> datetime | None:
    if moment is None or timezone.is_aware(moment):
        return moment
    return timezone.make_aware(moment, timezone.get_default_timezone())  # type: ignore[no-any-return]


def open_settings(text: str) -> DjangoTable:
    """Return the outbox of a Django project: ``shop.settings``, ``shop.settings/database``.

    Without the name of settings, return that of the settings in use, or of
    ``DJANGO_SETTINGS_MODULE``.

    Raises InvalidRequest if the settings cannot be loaded or have no outbox.
    """
    module, _, using = text.partition("/")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if module:
        os.environ["DJANGO_SETTINGS_MODULE"] = module
    try:
        if not apps.ready:
            django.setup()
        known = list(settings.DATABASES)
    except (ImproperlyConfigured, ModuleNotFoundError) as error:
        raise InvalidRequest.of("outbox", f"cannot load Django's settings: {error}") from None
    using = using or _DEFAULT
    if using not in known:
        raise InvalidRequest.of("outbox", f"must name one of DATABASES: {', '.join(known)}")
    return DjangoTable(using)
