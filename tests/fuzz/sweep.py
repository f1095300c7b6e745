"""Seeds one after the other in this very process, for whoever watches it.

    python -m coverage run -m tests.fuzz.sweep --seed 0 --seconds 60 --reached FILE

writes to FILE how far it came, before every batch.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path

from .differential import batches, try_seeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long, about")
    parser.add_argument("--reached", type=Path, required=True, help="where to write how far")
    asked = parser.parse_args()
    until = time.monotonic() + asked.seconds
    for batch in batches(itertools.count(asked.seed)):
        asked.reached.write_text(str(batch[0]))
        if time.monotonic() > until:
            return
        try_seeds(batch, ())


if __name__ == "__main__":
    main()
