"""Run a command as one part of a longer job, and tell how long each part took.

Beside the time that went by stands that of all its processes on all cores, which depends less on
what else the machine does.

python tools/timed.py LOG PART COMMAND ...    run it, add a line to LOG, exit as it does
python tools/timed.py LOG                     print the lines of LOG, and forget them
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path


def main(log: Path, part: str | None = None, *command: str) -> int:
    if part is None:
        print(log.read_text() if log.exists() else "", end="")
        log.unlink(missing_ok=True)
        return 0
    started, before = time.perf_counter(), os.times()
    status = subprocess.run(command).returncode
    after = os.times()
    on_cores = sum(after[2:4]) - sum(before[2:4])
    line = f"{part + ':':<16}{time.perf_counter() - started:7.1f} s {on_cores:8.1f} s of cores"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as lines:
        lines.write(f"{line}\n" if status == 0 else f"{line}   failed\n")
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
