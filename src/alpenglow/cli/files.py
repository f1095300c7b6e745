"""Files that commands write."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from alpenglow.base import whole, words


def write(path: Path, fill: whole.Fill) -> None:
    """Let `fill` write a file that nobody ever sees a part of; on any error `path` is as it was."""
    write_all({path: fill})


def write_all(fills: Mapping[Path, whole.Fill]) -> None:
    """Write several files, all of them or none."""
    for path in fills:
        check_folder(path)
    whole.write_all(fills)


def check_folder(path: Path) -> None:
    """Raise FileNotFoundError if there is no folder for a file: before long work, not after."""
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))


def stems(names: Iterable[str]) -> dict[str, str]:
    """Return a file name for each name, no two alike even where case does not count."""
    listed = list(names)
    plain = (re.sub(r"[^\w.-]+", "_", name).lstrip(".") or "output" for name in listed)
    return dict(zip(listed, words.apart(plain), strict=True))
