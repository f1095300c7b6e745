"""Files that appear whole or not at all.

Content is written aside and gets its name when it is complete.  What is no file (a device, a pipe)
is written to instead: a rename would put a file in its place, as root even in that of /dev/null.
Of a link, what it leads to is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

Fill = Callable[[BinaryIO], None]
"""Writes what a file holds."""


def write(path: Path, fill: Fill) -> None:
    """Let `fill` write the file at `path`, anew; on any error what was there is as it was."""
    write_all({path: fill})


def write_all(fills: Mapping[Path, Fill]) -> None:
    """Write several files, all of them or none; an OSError names the file by its final name."""
    aside: dict[Path, Path] = {}
    try:
        for path, fill in fills.items():
            with _named(path):
                if takes_what_comes(path):
                    with path.open("wb") as file:
                        fill(file)
                else:
                    final = Path(os.path.realpath(path))
                    aside[final] = final.with_name(
                        f".{final.name}.{os.getpid()}-{os.urandom(6).hex()}"
                    )
                    _fill(aside[final], fill)
        for final, draft in aside.items():
            with _named(final):
                os.replace(draft, final)
    except BaseException:
        for draft in aside.values():
            with contextlib.suppress(OSError):
                draft.unlink()
        raise


def _fill(path: Path, fill: Fill) -> None:
    """Write a file that is not there yet, down to the disk."""
    mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, mode, 0o666), "wb") as file:
        fill(file)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let an OSError name `path`: a full disk names no file, and others the one aside."""
    try:
        yield
    except OSError as error:
        # NumPy, where it could not write all of an array, says so in words alone.
        number, why = error.errno or errno.EIO, error.strerror or str(error)
        raise OSError(number, why, str(path)) from error


def takes_what_comes(path: Path) -> bool:
    """If there is a device, a pipe or a socket at `path`."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
