"""Who may read a folder and what is in it."""

from pathlib import Path


def modes(folder: Path) -> set[int]:
    """Return the modes of the folder and of everything in it."""
    return {path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}
