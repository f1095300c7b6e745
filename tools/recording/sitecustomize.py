"""Let each Python process of a recorded test run mark the functions that it executes.

`tools/record.py` puts this folder on PYTHONPATH, so also the processes that tests start run this.
"""

from __future__ import annotations

import os

if os.environ.get("REACHED_FOLDER"):
    import marking

    marking.install()
