"""A package that Spark put on the path as one zip file, laid out in a folder.

botocore reads files that lie beside its modules, which it cannot do inside a zip file.
"""

import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

_TELLS: Final = "botocore/"


def unzipped() -> Path | None:
    """Put the folder with what our zip file holds first on the path; None without such a file."""
    for entry in sys.path:
        if entry.endswith(".zip") and zipfile.is_zipfile(entry):
            with zipfile.ZipFile(entry) as archive:
                if any(name.startswith(_TELLS) for name in archive.namelist()):
                    folder = tempfile.mkdtemp(prefix="headrace-")
                    archive.extractall(folder)
                    sys.path.insert(0, folder)
                    return Path(folder)
    return None
