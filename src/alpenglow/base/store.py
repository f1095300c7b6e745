"""A store of byte strings on disk, found by key: compiled kernels, prepared weights.

Nothing in it is ever needed: whatever is missing, damaged or not trustworthy is made again.  So a
store never raises for what it finds on disk; it warns, once for each cause, and does without.

- Only the user may have written what is read: a folder or entry that belongs to somebody else,
  or that others may write to, is ignored (where files have owners and modes).
- An entry is written aside and renamed into place, so processes may share a folder, and one that
  is killed leaves nothing half-written under an entry's name.
- Each entry carries a checksum of key and content; a damaged one is ignored.
- The sum of sizes is bounded; what was not used for the longest time goes first.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import stat
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO

from alpenglow.base.locks import new_lock
from alpenglow.base.mapped import Mapped, read_into
from alpenglow.base.memory import COPIED_NBYTES, aligned_bytes, sealed

Part = bytes | memoryview

MAGIC = b"ALPENGL1"
HEADER_NBYTES = 64  # magic, checksum, zeros: the content begins on a cache line
CAPACITY_NBYTES = 1 << 30
HOUR = 3600.0  # seconds

_TEMPORARY = ".new-"
_SUFFIX = ".entry"
_CHUNK_NBYTES = 1 << 20
_numbers = itertools.count()


class StoreWarning(UserWarning):
    """Something in the store's folder is damaged, not trustworthy, or cannot be written."""


class Store:
    """Byte strings by key, in `folder`, or only in memory where that is None."""

    def __init__(self, folder: Path | None, *, capacity_nbytes: int = CAPACITY_NBYTES) -> None:
        self.folder = folder
        self.capacity_nbytes = capacity_nbytes
        self.made = 0
        """How often `get_or_make` found nothing."""
        self._memory: dict[str, bytes] = {}
        self._lock = new_lock()
        self._warned: set[str] = set()
        self._writable = True

    def get(self, key: str) -> bytes | None:
        """Return what was put under `key`, or None."""
        if self.folder is None:
            return self._remembered(key)
        with self._opened(key) as file:
            if file is None:
                return None
            content = file.read()[HEADER_NBYTES:]
        return content

    def open_map(self, key: str) -> memoryview | None:
        """Return the entry of `key`, in aligned memory; None if there is none.

        What is larger than `COPIED_NBYTES` is a view of the file: processes share the memory, and
        it can be dropped and read again.
        """
        if self.folder is None:
            content = self._remembered(key)
            return None if content is None else memoryview(content)
        with self._opened(key) as file:
            if file is None:
                return None
            nbytes = os.fstat(file.fileno()).st_size
            if nbytes > COPIED_NBYTES:
                path = str(self._path(self.folder, key))
                return memoryview(Mapped(file.fileno(), path))[HEADER_NBYTES:]
            copy = aligned_bytes(nbytes)
            if read_into(file.fileno(), 0, copy.data) < nbytes:
                return None
        return sealed(copy).data[HEADER_NBYTES:]

    def put(self, key: str, content: Part | Sequence[Part]) -> None:
        """Keep `content` under `key`; whatever was there before is replaced.

        A sequence is kept as one string of bytes, which never exists in memory.
        """
        parts = [content] if isinstance(content, bytes | memoryview) else content
        if self.folder is None:
            self._remember(key, b"".join(parts))
            return
        if not self._writable or not self._prepared(self.folder):
            return
        try:
            _write(self._path(self.folder, key), [_header(key, parts), *parts])
        except PermissionError as error:
            # Windows does not replace a file that somebody has mapped: the entry is there.
            if not self._path(self.folder, key).exists():
                self._give_up_writing(error)
            return
        except OSError as error:
            self._give_up_writing(error)
            return
        self._count(self.folder, HEADER_NBYTES + sum(map(len, parts)))

    def get_or_make(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Return what is under `key`; where there is nothing, call `make` and keep the result."""
        content = self.get(key)
        if content is None:
            self.made += 1
            content = make()
            self.put(key, content)
        return content

    # In memory.

    def _remembered(self, key: str) -> bytes | None:
        with self._lock:
            content = self._memory.pop(key, None)
            if content is not None:
                self._memory[key] = content  # at the end: the latest used
            return content

    def _remember(self, key: str, content: bytes) -> None:
        with self._lock:
            self._memory.pop(key, None)
            self._memory[key] = bytes(content)
            total = sum(len(kept) for kept in self._memory.values())
            while total > self.capacity_nbytes:
                total -= len(self._memory.pop(next(iter(self._memory))))

    # On disk: reading.

    @staticmethod
    def _path(folder: Path, key: str) -> Path:
        return folder / (hashlib.sha256(key.encode()).hexdigest() + _SUFFIX)

    @contextlib.contextmanager
    def _opened(self, key: str) -> Iterator[BinaryIO | None]:
        """Open the entry of `key` at its start, after checking all of it; None if there is none."""
        assert self.folder is not None, "an entry in memory is not opened"
        path = self._path(self.folder, key)
        try:
            descriptor = os.open(path, _READING)
        except OSError:
            yield None
            return
        with open(descriptor, "rb") as file:
            yield file if self._trusts(self.folder) and self._is_sound(file, path, key) else None

    def _is_sound(self, file: BinaryIO, path: Path, key: str) -> bool:
        """Check owner, mode and checksum of an entry; mark it as used."""
        try:
            status = os.fstat(file.fileno())
            fault = _distrust(status)
            if fault:
                self._warn(f"entries in '{path.parent}' are ignored: {path.name} {fault}", fault)
                return False
            if not _is_intact(file, key):
                self._warn(f"'{path}' is damaged; it is ignored and made again", path.name)
                return False
            file.seek(0)
        except OSError as error:
            self._warn(f"'{path}' cannot be read ({error}); it is made again", path.name)
            return False
        if time.time() - _last_use(status) > HOUR:
            # Who has mapped the entry takes another time of modification for damage.
            with contextlib.suppress(OSError):
                os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))
        return True

    def _trusts(self, folder: Path) -> bool:
        """Say if only this user can have written into `folder`; warn once if not."""
        try:
            fault = _distrust(folder.stat(), folder=True)
        except OSError:
            return False
        if fault:
            self._warn(f"the folder '{folder}' is not used: it {fault}", "folder")
        return not fault

    # On disk: writing.

    def _prepared(self, folder: Path) -> bool:
        """Make the folder if need be, and say if it may be written to."""
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            if not folder.is_dir():
                raise NotADirectoryError(f"'{folder}' is a file, expected a folder")
        except OSError as error:
            self._give_up_writing(error)
            return False
        return self._trusts(folder)

    def _give_up_writing(self, error: OSError) -> None:
        self._writable = False
        self._warn(f"nothing more is kept in '{self.folder}': {error}", "write")

    def _count(self, folder: Path, nbytes: int) -> None:
        """Keep the sum of sizes; look at the folder at first, when it may be full, each hour."""
        total = _total(folder)
        with self._lock:
            total.nbytes += nbytes
            late = time.monotonic() > total.until
            if late or total.nbytes > self.capacity_nbytes:
                total.nbytes = _tidy(folder, self.capacity_nbytes)
                total.until = time.monotonic() + HOUR

    def _warn(self, message: str, cause: str) -> None:
        """Warn, once for each cause."""
        with self._lock:
            if cause in self._warned:
                return
            self._warned.add(cause)
        warnings.warn(message, StoreWarning, stacklevel=4)


@dataclass
class _Total:
    """The sum of sizes of a folder's entries as far as this process knows, and until when."""

    nbytes: int = 0
    until: float = float("-inf")  # of `time.monotonic`


@cache
def _total(folder: Path) -> _Total:
    """Return what all stores of a folder know: to look at thousands of entries takes a while."""
    return _Total()


# A link in the place of an entry is not followed, a pipe does not block.
_READING = (
    os.O_RDONLY
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


def _distrust(status: os.stat_result, *, folder: bool = False) -> str:
    """Return why what has this status may have been written by others; "" if it cannot have."""
    if not folder and not stat.S_ISREG(status.st_mode):
        return "is not a file"
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    return "can be written by other users" if status.st_mode & 0o022 else ""


def _digest(key: str) -> hashlib._Hash:
    name = key.encode()
    return hashlib.sha256(len(name).to_bytes(8, "little") + name)


def _header(key: str, parts: Sequence[Part]) -> bytes:
    digest = _digest(key)
    for part in parts:
        digest.update(part)
    return (MAGIC + digest.digest()).ljust(HEADER_NBYTES, b"\0")


def _is_intact(file: BinaryIO, key: str) -> bool:
    """Say if a file, read from its start, is an entry of `key` as it was written."""
    header = file.read(HEADER_NBYTES)
    digest = _digest(key)
    while chunk := file.read(_CHUNK_NBYTES):
        digest.update(chunk)
    return header == (MAGIC + digest.digest()).ljust(HEADER_NBYTES, b"\0")


def _write(path: Path, parts: Sequence[Part]) -> None:
    """Write a file aside, then give it its name: nobody ever sees a part of it."""
    name = f"{_TEMPORARY}{os.getpid()}-{next(_numbers)}-{os.urandom(8).hex()}"
    aside = path.with_name(name)
    try:
        descriptor = os.open(
            aside,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0),
            0o600,
        )
        with open(descriptor, "wb") as file:
            file.writelines(parts)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise


def _last_use(status: os.stat_result) -> float:
    return max(status.st_atime, status.st_mtime)


def _tidy(folder: Path, capacity_nbytes: int) -> int:
    """Remove what killed processes left behind and, if too full, the longest unused entries.

    Returns the sum of sizes of what is left.  Others may tidy at the same time.
    """
    now = time.time()
    entries: list[tuple[float, int, str]] = []
    with contextlib.suppress(OSError), os.scandir(folder) as files:
        for item in files:
            with contextlib.suppress(OSError):
                status = item.stat(follow_symlinks=False)
                if item.name.endswith(_SUFFIX):
                    entries.append((_last_use(status), status.st_size, item.path))
                elif item.name.startswith(_TEMPORARY) and now - status.st_mtime > HOUR:
                    os.unlink(item.path)
    total = sum(nbytes for _, nbytes, _ in entries)
    # Some room is made at once, so that a full store is not tidied at every entry.
    bound = capacity_nbytes if total <= capacity_nbytes else capacity_nbytes * 9 // 10
    for _, nbytes, path in sorted(entries):
        if total <= bound:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
            total -= nbytes
    return total
