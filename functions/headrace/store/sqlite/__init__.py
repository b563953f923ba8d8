"""The embedded store: the protocol on one SQLite file, for any number of threads and processes."""

from headrace.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
