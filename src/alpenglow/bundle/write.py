"""Writing a folder so that nobody ever sees a part of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from alpenglow.base.errors import OptionError


def refuse_existing(folder: Path) -> None:
    """Raise OptionError if there is anything at `folder`, or nowhere to put it."""
    if os.path.lexists(folder):
        raise OptionError(
            f"{folder} is there already, and a bundle replaces nothing",
            hint="remove it, or name another folder",
        )
    if not folder.parent.is_dir():
        raise OptionError(f"there is no folder {folder.parent} to put {folder.name} into")


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files aside, then give their folder its name; on any error nothing is left."""
    aside = folder.with_name(f".{folder.name}.{os.getpid()}-{os.urandom(6).hex()}")
    aside.mkdir()
    try:
        for name, content in files.items():
            _write(aside / name, content, folder / name)
        refuse_existing(folder)
        aside.rename(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _write(path: Path, content: bytes, meant: Path) -> None:
    """Write a file aside; an error names the file that it was to become."""
    try:
        path.write_bytes(content)
    except OSError as error:
        said = f"{error.strerror} (of {len(content):,} bytes; the folder is not made)"
        raise OSError(error.errno, said, str(meant)) from None
