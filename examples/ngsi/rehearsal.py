"""The app as the demo's workers run it: with trouble, and with its costs told in the end.

Standard output carries one JSON object: what the calls of this process have cost.
"""

import atexit
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from examples.ngsi.app import app
from examples.ngsi.trouble import die_for, fail_once

__all__ = ["app"]


def _write_costs() -> None:
    json.dump(asdict(app.client.consumed), sys.stdout)
    sys.stdout.flush()


app.middleware(fail_once)
app.middleware(die_for(Path(os.environ["NGSI_CRASH_TOKEN"]), last_words=_write_costs))
atexit.register(_write_costs)
