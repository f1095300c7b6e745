"""The logger `alpenglow`: what is compiled, when and why.

INFO has a line for each compilation, DEBUG also one for each pass, and for each time
that calls take fewer threads, or more again, because of what else runs.  Nothing is
printed unless the caller sets logging up, as by
``logging.basicConfig(level=logging.INFO)``.
"""

from __future__ import annotations

import logging

log = logging.getLogger("alpenglow")
log.addHandler(logging.NullHandler())
