"""Writing files so that nobody ever sees a part of one."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO


def write(path: Path, fill: Callable[[BinaryIO], None]) -> None:
    """Let `fill` write aside, then give the file its name; on any error `path` is as it was."""
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
    aside = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(6).hex()}")
    mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(aside, mode, 0o666), "wb") as file:
            fill(file)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise


def stems(names: Iterable[str]) -> dict[str, str]:
    """Return a file name for each name, no two alike even where case does not count."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        stem = plain = re.sub(r"[^\w.-]+", "_", name).lstrip(".") or "output"
        number = 1
        while stem.lower() in taken:
            number += 1
            stem = f"{plain}_{number}"
        taken.add(stem.lower())
        found[name] = stem
    return found
