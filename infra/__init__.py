"""What runs, deploys and watches Headrace; nothing in `functions/` may import it."""

from pathlib import Path
from typing import Final

PROJECT_ROOT: Final = Path(__file__).resolve().parents[1]
"""The folder of the checkout."""
