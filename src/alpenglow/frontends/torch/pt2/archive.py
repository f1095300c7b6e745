"""The zip archive that a ``.pt2`` file is: its entries, and the tensors that lie in them.

Nothing is ever unpickled.  The author of a file is not trusted: the offset, size and checksum of an
entry are compared with its content, and the size of an unpacked archive is limited.
"""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from alpenglow.base.errors import IncompatibleError, ModelError, UnsupportedError
from alpenglow.base.mapped import read_into
from alpenglow.base.memory import aligned_bytes, sealed
from alpenglow.base.words import shown
from alpenglow.ir.types import DTYPES, Array

GROWTH, FREE_NBYTES = 100, 16 << 20
"""An archive unpacks to GROWTH times its size and FREE_NBYTES at most; PyTorch packs nothing."""

OVERLAP_NBYTES = 256 << 20
"""How much larger the tensors may be than what is stored, where their elements are stored once."""

MOST_AXES = 32
"""The largest rank of an array in the oldest supported NumPy."""

LOCAL = struct.Struct("<4s2xHH16xHH")
"""The header before an entry's bytes: signature, flags, method, lengths of name and extra field."""

ENCRYPTED = 1
TOLD_APART = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

DAMAGE = (
    zipfile.BadZipFile, NotImplementedError, struct.error, ValueError, LookupError, OSError,
    EOFError, OverflowError, RuntimeError, zlib.error,
)  # fmt: skip
"""The exceptions that Python's zipfile raises for a damaged directory."""


@dataclass(frozen=True, slots=True)
class Archive:
    """The bytes of a file, and where its entries lie, by their names without the common folder."""

    content: memoryview
    entries: Mapping[str, zipfile.ZipInfo]

    def read(self, name: str) -> memoryview:
        """Return the bytes of an entry: a view of the file if they are stored as they are."""
        if name not in self.entries:
            raise ModelError(f"entry '{shown(name)}' of the archive is missing")
        entry = self.entries[name]
        packed = self._packed(entry, name)
        whole = packed if entry.compress_type == zipfile.ZIP_STORED else _inflated(entry, packed)
        if len(whole) != entry.file_size or zlib.crc32(whole) != entry.CRC:
            raise ModelError(f"'{shown(name)}' is damaged: its size or checksum is not the "
                             "expected one")  # fmt: skip
        return whole

    def text(self, name: str) -> str:
        """Return the text of an entry."""
        try:
            return str(self.read(name), "utf-8")
        except UnicodeDecodeError as error:
            raise ModelError(f"'{shown(name)}' is not text, expected UTF-8") from error

    def _packed(self, entry: zipfile.ZipInfo, name: str) -> memoryview:
        start = entry.header_offset
        header = self.content[start : start + LOCAL.size] if start >= 0 else memoryview(b"")
        if len(header) < LOCAL.size:
            raise _outside(name)
        magic, flags, method, named, extra = LOCAL.unpack(header)
        if magic != b"PK\3\4" or method != entry.compress_type:
            raise ModelError(f"'{shown(name)}' does not begin with the expected zip header")
        if flags & ENCRYPTED or entry.flag_bits & ENCRYPTED:
            raise UnsupportedError(f"'{shown(name)}' is encrypted, expected a plain entry")
        if method not in TOLD_APART:
            raise UnsupportedError(f"'{shown(name)}' is compressed by method {method}, expected 0 "
                                   "(stored) or 8 (deflated)")  # fmt: skip
        first = start + LOCAL.size + named + extra
        packed = self.content[first : first + entry.compress_size]
        if len(packed) != entry.compress_size:
            raise _outside(name)
        return packed


def _inflated(entry: zipfile.ZipInfo, packed: memoryview) -> memoryview:
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        return memoryview(unpacker.decompress(packed, max(entry.file_size, 1)))
    except zlib.error as error:
        raise ModelError(f"'{shown(entry.filename)}' is damaged: {error}, "
                         "expected deflated data") from error  # fmt: skip


def _outside(name: str) -> ModelError:
    return ModelError(f"'{shown(name)}' lies outside of the file, expected a complete archive")


def _foreign(why: str) -> ModelError:
    return ModelError(f"this is not a .pt2 file, expected what torch.export.save writes: {why}")


def opened(model: str | Path | bytes) -> Archive:
    """Return the archive in a file or in bytes; raise ModelError if there is none."""
    if isinstance(model, bytes):
        return _archive(memoryview(model), io.BytesIO(model))
    if Path(model).is_dir():
        raise ModelError("cannot read the model: this is a folder, expected a file")
    try:
        with Path(model).open("rb") as file:
            return _archive(_content(file), file)
    except OSError as error:
        raise ModelError(f"cannot read the model: {error.strerror}, "
                         "expected a readable file") from error  # fmt: skip


def _content(file: IO[bytes]) -> memoryview:
    """Return a copy of the bytes of a file: a later write into the file changes no model."""
    memory = aligned_bytes(os.fstat(file.fileno()).st_size)
    if read_into(file.fileno(), 0, memory.data) < len(memory):
        raise ModelError("the size of the file changes while it is read, expected a complete file")
    return sealed(memory).data


def _archive(content: memoryview, file: IO[bytes]) -> Archive:
    try:
        with zipfile.ZipFile(file) as directory:
            infos = directory.infolist()
    except DAMAGE as error:
        raise _foreign(str(error)) from error
    root = infos[0].filename.partition("/")[0] + "/" if infos else ""
    entries: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.filename.removeprefix(root)
        if name in entries:
            raise ModelError(f"the archive has two entries '{shown(name)}', expected one")
        entries[name] = info
    grown = sum(i.file_size for i in infos if i.compress_type != zipfile.ZIP_STORED)
    if grown > GROWTH * len(content) + FREE_NBYTES:
        most = GROWTH * len(content) + FREE_NBYTES
        raise ModelError(f"the archive unpacks to {grown} bytes, expected at most {most}",
                         hint="store its entries uncompressed")  # fmt: skip
    return Archive(content, entries)


def check_format(archive: Archive) -> None:
    """Raise an error that says what an archive is if no exported program is in it."""
    entries = archive.entries
    if "archive_format" in entries:
        _expect(archive, "archive_format", "pt2")
        _expect(archive, "archive_version", "0")
        if "byteorder" in entries:
            _expect(archive, "byteorder", "little")
        return
    if "serialized_exported_program.json" in entries:
        raise UnsupportedError(
            "the file was written by a PyTorch before 2.8, which pickled the weights",
            hint="load it there and save it with torch 2.13",
        )
    if any(n.endswith("data.pkl") for n in entries):
        raise UnsupportedError(
            "this is a pickle (TorchScript, or a dict of weights), which is never loaded",
            hint="torch.export.save(torch.export.export(module, args), 'model.pt2')",
        )
    raise _foreign("the archive has no 'archive_format'")


def _expect(archive: Archive, name: str, expected: str) -> None:
    actual = archive.text(name).strip()
    if actual != expected:
        raise IncompatibleError(f"{name} is '{shown(actual)}', expected '{expected}'")


# ── tensors ──


@dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor lies among the elements of what is stored."""

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.sizes) * DTYPES[self.dtype].itemsize


def tensors(archive: Archive, places: Mapping[str, tuple[str, Layout]]) -> dict[str, Array]:
    """Return tensors by name, each a view of an entry; those that are one place are one array."""
    stored: dict[str, memoryview] = {}
    for name, (entry, layout) in places.items():
        _check(layout, f"tensor '{shown(name)}'")
        if entry not in stored:
            stored[entry] = archive.read(entry)
    room = sum(map(len, stored.values())) + OVERLAP_NBYTES
    arrays: dict[tuple[str, Layout], Array] = {}
    named = {}
    for name, place in places.items():
        entry, layout = place
        if place not in arrays or not layout.nbytes:  # those without elements share no memory
            room -= layout.nbytes
            if room < 0:
                raise ModelError("the tensors are far larger than what is stored of them, "
                                 f"expected at most {OVERLAP_NBYTES} bytes more")  # fmt: skip
            arrays[place] = _view(stored[entry], layout, f"tensor '{shown(name)}'")
        named[name] = arrays[place]
    return named


def _check(layout: Layout, what: str) -> None:
    if len(layout.sizes) != len(layout.strides):
        raise ModelError(f"{what} has {len(layout.strides)} strides, expected "
                         f"{len(layout.sizes)}, one for each size")  # fmt: skip
    if len(layout.sizes) > MOST_AXES:
        raise UnsupportedError(f"{what} has {len(layout.sizes)} axes, expected {MOST_AXES} at most")
    if min((layout.offset, *layout.sizes, *layout.strides)) < 0:
        raise ModelError(f"{what} has sizes {layout.sizes}, strides {layout.strides} and offset "
                         f"{layout.offset}, expected at least 0 each")  # fmt: skip


def _view(stored: memoryview, layout: Layout, what: str) -> Array:
    dtype = DTYPES[layout.dtype]
    try:
        if not layout.nbytes:
            return np.empty(layout.sizes, dtype)
        count = len(stored) // dtype.itemsize
        last = layout.offset + sum(
            (n - 1) * s for n, s in zip(layout.sizes, layout.strides, strict=True)
        )
        if last >= count:
            raise ModelError(f"{what} reaches element {last}, expected less than {count}, "
                             "the number stored")  # fmt: skip
        # How far apart the elements of an axis of one lie is of no matter, and may be anything.
        steps = [s * dtype.itemsize if n > 1 else 0
                 for n, s in zip(layout.sizes, layout.strides, strict=True)]  # fmt: skip
        first = layout.offset * dtype.itemsize
        array: Array = np.ndarray(layout.sizes, dtype, stored, first, steps)
    except ValueError as error:  # sizes that NumPy has no array of, though 0 elements
        raise ModelError(f"{what} has sizes {layout.sizes}, "
                         "expected sizes of a NumPy array") from error  # fmt: skip
    if layout.dtype == "bool" and array.view(np.uint8).max() > 1:
        raise ModelError(f"{what} has bytes above 1, expected 0 or 1 for dtype bool")
    return array if array.flags.aligned else array.copy()
