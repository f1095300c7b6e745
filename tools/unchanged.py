"""Run a command, and fail if it changed anything in folders that it has to leave alone.

    python tools/unchanged.py FOLDER ... -- COMMAND ...

Exits as the command does, or with 1 if that was 0 and a file has come, gone or been written.
`make test` runs the tests under it: a test that writes into the sources or the installation can
break them for good.  Who edits a file meanwhile is told so too: half of the tests saw the old one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SPARED = (".git", ".pytest_cache", ".venv/times")
"""Paths below each folder that pytest, make and git write to."""

BYTECODE = "__pycache__"
"""Folders, at any depth, that Python writes to when it imports a module."""

SHOWN = 20

State = dict[Path, tuple[int, int, int]]
"""For each file, link and folder: its mode, size and time of writing; of folders only the mode."""


def main(arguments: list[str]) -> int:
    if "--" not in arguments:
        print(__doc__, file=sys.stderr)
        return 2
    middle = arguments.index("--")
    folders = [Path(a) for a in arguments[:middle]]
    before = state(folders)
    status = subprocess.run(arguments[middle + 1 :]).returncode
    changes = list(differences(before, state(folders)))
    for line in changes[:SHOWN]:
        print(f"unchanged.py: {line}", file=sys.stderr)
    if changes:
        print(f"unchanged.py: {len(changes)} changes while this ran: "
              f"{' '.join(arguments[middle + 1 :])}", file=sys.stderr)  # fmt: skip
    return status or bool(changes)


def state(folders: list[Path]) -> State:
    """Return what is there now."""
    return {path: fact for folder in folders for path, fact in below(folder, folder)}


def below(folder: Path, top: Path) -> Iterator[tuple[Path, tuple[int, int, int]]]:
    """Yield each entry below `folder`, except bytecode and what is spared below `top`."""
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            path = Path(entry.path)
            if entry.name == BYTECODE or path.relative_to(top).as_posix() in SPARED:
                continue
            s = entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                yield path, (s.st_mode, 0, 0)
                yield from below(path, top)
            else:
                yield path, (s.st_mode, s.st_size, s.st_mtime_ns)


def differences(before: State, after: State) -> Iterator[str]:
    for path in sorted(before.keys() | after.keys()):
        if path not in before:
            yield f"{path} has come"
        elif path not in after:
            yield f"{path} has gone"
        elif before[path] != after[path]:
            yield f"{path} was written"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
