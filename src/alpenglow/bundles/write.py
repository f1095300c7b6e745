"""Writing a folder so that nobody ever sees a part of it, and replacing one that we wrote.

Beside the files of a bundle stand their sums, as `sha256sum -c` reads them.  They tell a folder
that can be replaced, since a bundle would write it again, from one that holds anything of somebody
else's: another file, or one of ours that was changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from alpenglow.base.errors import OptionError
from alpenglow.base.words import shown

SUMS = ".bundle.sha256"
"""The file of the sums."""

_MARK = "# Written by Alpenglow; --force replaces this folder while it holds these files only.\n"


def refuse_existing(folder: Path, force: bool = False) -> None:
    """Raise OptionError if there is anything at `folder`, or nowhere to put it.

    With `force` what a bundle wrote may be there, or nothing but the folder.
    """
    if os.path.lexists(folder):
        if not force:
            raise OptionError(
                f"{folder} is there already, and a bundle replaces nothing without force",
                hint="name another folder, or force=True to replace what a bundle wrote",
                flags="name another folder, or --force to replace what a bundle wrote",
            )
        if foreign := _foreign(folder):
            raise OptionError(
                f"{folder} is not replaced: {foreign}", hint="remove it, or name another folder"
            )
    if not folder.parent.is_dir():
        raise OptionError(f"the folder {folder.parent} is missing, expected one for {folder.name}")


def write_folder(folder: Path, files: Mapping[str, bytes], force: bool = False) -> None:
    """Write files aside, then give their folder its name; on any error all is as it was."""
    aside = folder.with_name(f".{folder.name}.{os.getpid()}-{os.urandom(6).hex()}")
    aside.mkdir()
    try:
        for name, content in {**files, SUMS: _sums(files)}.items():
            _write(aside / name, content, folder / name)
        refuse_existing(folder, force)
        _rename(aside, folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _rename(aside: Path, folder: Path) -> None:
    """Give a folder the name of another, which is put back if that fails and removed if not."""
    if not folder.exists():
        aside.rename(folder)
        return
    old = aside.with_name(f"{aside.name}.old")
    folder.rename(old)
    try:
        aside.rename(folder)
    except BaseException:
        old.rename(folder)
        raise
    shutil.rmtree(old)


def _sums(files: Mapping[str, bytes]) -> bytes:
    lines = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
    return "".join((_MARK, *lines)).encode()


def _foreign(folder: Path) -> str:
    """Return what in a folder no bundle wrote, or that there is none; "" if it can be replaced."""
    if folder.is_symlink() or not folder.is_dir():
        return "it is no folder"
    entries = {entry.name: entry for entry in folder.iterdir()}
    if not entries:
        return ""
    sums = entries.pop(SUMS, None)
    if sums is None or not sums.is_file():
        return f"no bundle wrote it, there is no {SUMS} in it"
    known = dict(_pair(line) for line in sums.read_text(errors="replace").splitlines()[1:])
    for name, entry in sorted(entries.items()):
        if name not in known or entry.is_symlink() or not entry.is_file():
            return f"'{shown(name)}' in it is not of the bundle"
        with entry.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != known[name]:
                return f"'{shown(name)}' in it was changed"
    return ""


def _pair(line: str) -> tuple[str, str]:
    digest, _, name = line.partition("  ")
    return name, digest


def _write(path: Path, content: bytes, meant: Path) -> None:
    """Write a file aside; an error names the file that it was to become."""
    try:
        path.write_bytes(content)
    except OSError as error:
        said = f"{error.strerror} (of {len(content):,} bytes; nothing is written)"
        raise OSError(error.errno, said, str(meant)) from None
