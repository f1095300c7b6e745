"""Files that appear whole or not at all.

Content is written aside and gets its name when it is complete.  What is no file (a device, a pipe)
is written to instead: a rename would put a file in its place, as root even in that of /dev/null.
Of a link, what it leads to is written.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write(path: Path, fill: Callable[[BinaryIO], None]) -> None:
    """Let `fill` write the file at `path`, anew; on any error what was there is as it was."""
    if takes_what_comes(path):
        with path.open("wb") as file:
            fill(file)
        return
    final = Path(os.path.realpath(path))
    aside = final.with_name(f".{final.name}.{os.getpid()}-{os.urandom(6).hex()}")
    mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(aside, mode, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, final)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise


def takes_what_comes(path: Path) -> bool:
    """If there is a device, a pipe or a socket at `path`."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
