"""Archives: an artifact as one file, a `.ago`, from which it is ready to run without compiling.

    offset 0   magic (8 bytes), format version (4), kernel calling convention (4),
               length of the header (8), SHA-256 of the header (32), zeros up to 64
    header     JSON: who wrote it, the target, and where everything lies (`_header`)
    sections   program text, table, kernels, weights, each at a multiple of 64 bytes
    signature  if it is signed (`runtime.signature`)

Every constant begins at a multiple of 64 bytes too, so weights are used where a mapped file has
them.  Reading checks the header against the prefix, code and table against the header, and each
constant against the digest by which the program's text names it.  That finds damage, not malice:
an archive holds machine code, and whoever runs it trusts whoever wrote it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import llvmlite.binding as llvm
import numpy as np

from alpenglow.backends.api import Artifact, Entry
from alpenglow.base import whole
from alpenglow.base.errors import AlpenglowError, IncompatibleError, ModelError, OptionError
from alpenglow.base.memory import ALIGNMENT, aligned_bytes
from alpenglow.ir.metadata import of_plain
from alpenglow.ir.target import Target
from alpenglow.ir.types import DTYPES, NAMES, Array
from alpenglow.program import Program
from alpenglow.program.text import parse_program, print_program, side_weights
from alpenglow.runtime import signature

MAGIC = b"ALPENGO\n"
FORMAT = 1
"""The version of the file format: anything else is refused."""

CONVENTION = 3
"""The version of how a table is walked and kernels are called: see `backends.api.Entry`."""

PREFIX = struct.Struct("<8sIIQ32s8x")

COPIED_NBYTES = 64 << 20
"""Up to this size a file is copied as it is opened, so that it may be overwritten."""


NONSENSE = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
"""What Python raises where a header is not made as ours are."""


class Extent(NamedTuple):
    """A run of bytes in the file."""

    offset: int
    nbytes: int

    def within(self, view: memoryview) -> memoryview:
        """Return these bytes of `view`; raise ValueError where they are not all there."""
        if not 0 <= self.offset <= self.offset + self.nbytes <= len(view):
            raise ValueError(f"the file ends before byte {self.offset + self.nbytes}")
        return view[self.offset : self.offset + self.nbytes]


def write(artifact: Artifact, path: str | os.PathLike[str]) -> None:
    """Write the archive of `artifact` to `path`, replacing what is there.

    The file gets its name when it is complete, so nobody ever sees a part of one.  Raises OSError
    where it cannot be written; then `path` is as it was.
    """

    def fill(file: BinaryIO) -> None:
        for part in parts(artifact):
            file.write(part)

    whole.write(Path(path), fill)


def sign(path: Path, key: signature.Key, output: Path) -> None:
    """Write the archive at `path`, signed by a private key, to `output`, which may be `path`."""
    with _opened(path) as descriptor:
        content, _ = signature.parted(_content(descriptor, mapped=False))
        unpack(content, foreign=True)
        trailer = signature.sign(bytes(content[: PREFIX.size]), key)

    def fill(file: BinaryIO) -> None:
        file.write(content)
        file.write(trailer)

    whole.write(output, fill)


def to_bytes(artifact: Artifact) -> bytes:
    """Return the archive of `artifact` as `write` would write it."""
    return b"".join(parts(artifact))


Content = bytes | bytearray | memoryview
"""An archive in memory."""


def read(
    source: str | os.PathLike[str] | Content,
    mapped: bool | None = None,
    key: signature.Key | None = None,
) -> Artifact:
    """Return the artifact that an archive holds: the file of that name, or bytes, which are copied.

    Its weights are views of the file if that is `mapped`, otherwise of a copy in memory.  None maps
    what is larger than `COPIED_NBYTES`, unless a public `key` must have signed it: what was checked
    can then not change any more.  Raises SignatureError if it has not, ModelError if the file is no
    archive, is damaged or changes meanwhile, and IncompatibleError if its code cannot run here.
    """
    if isinstance(source, Content):
        if mapped:
            raise OptionError("mmap is True, but the archive is bytes, not a file")
        return _checked(_copied(source), key)
    if not isinstance(source, str | os.PathLike):
        raise OptionError(
            f"the archive is a {type(source).__name__}, expected the path of a file, or its bytes"
        )
    with _opened(source) as descriptor:
        content = _content(descriptor, False if mapped is None and key is not None else mapped)
        artifact = _checked(content, key)
        if os.fstat(descriptor).st_size != len(content):
            raise ModelError(_CHANGES)
        return artifact


def _checked(content: memoryview, key: signature.Key | None) -> Artifact:
    """Return the artifact in an archive, whose signature is checked first if there is a `key`."""
    body, signed = signature.parted(content)
    if key is not None:
        signature.check(bytes(body[: PREFIX.size]), signed, key)
    return unpack(body)


def _copied(source: Content) -> memoryview:
    """Return a copy of bytes, which begins where vectors like it and never changes."""
    view = memoryview(source)
    copy = aligned_bytes(view.nbytes).data
    copy[:] = view.cast("B") if view.c_contiguous and view.nbytes else view.tobytes()
    return copy.toreadonly()


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[int]:
    """Open an archive for reading; errors name it."""
    file = os.fspath(path)
    try:
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ModelError(f"cannot read the archive: {error.strerror}", file=file) from error
    except AlpenglowError as error:
        raise error.located(file=file) from None


_CHANGES = "the file is being written: its size changes"


def _content(descriptor: int, mapped: bool | None) -> memoryview:
    """Return the bytes of an open file: mapped, or a copy."""
    nbytes = os.fstat(descriptor).st_size
    if mapped is None:
        mapped = nbytes > COPIED_NBYTES
    if mapped and nbytes:  # an empty file cannot be mapped
        return memoryview(mmap.mmap(descriptor, nbytes, access=mmap.ACCESS_READ))
    copy = aligned_bytes(nbytes).data
    with open(descriptor, "rb", buffering=0, closefd=False) as stream:
        done = 0
        while done < nbytes and (count := stream.readinto(copy[done:])):
            done += count
        if done < nbytes or stream.read(1):
            raise ModelError(_CHANGES)
    return copy.toreadonly()


def parts(artifact: Artifact) -> Iterator[bytes | memoryview]:
    """Yield the bytes of the archive of `artifact`, from first to last."""
    program = print_program(artifact.program).encode()
    table = json.dumps([[e.kernel, e.extent, e.stops, e.faults] for e in artifact.table]).encode()
    kernels = b"".join(artifact.objects.values())
    weights = side_weights(artifact.program)
    header = _header(artifact, {"program": program, "table": table, "kernels": kernels}, weights)
    prefix = PREFIX.pack(MAGIC, FORMAT, CONVENTION, len(header), hashlib.sha256(header).digest())
    for part in (prefix, header, program, table, kernels):
        yield from _padded(part)
    for array in weights.values():
        yield from _padded(_flat(array).data)


def nbytes(artifact: Artifact) -> int:
    """Return about how long the archive of `artifact` is: its weights and code."""
    weights = sum(array.nbytes for array in side_weights(artifact.program).values())
    return weights + sum(map(len, artifact.objects.values()))


def _header(
    artifact: Artifact, sections: Mapping[str, bytes], weights: Mapping[str, Array]
) -> bytes:
    """Return the header.  Offsets count from its padded end, so that its length is no matter."""
    offset = 0
    places: dict[str, Any] = {}
    for name, content in sections.items():
        digest = hashlib.sha256(content).hexdigest()
        places[name] = {"offset": offset, "nbytes": len(content), "sha256": digest}
        offset += _up(len(content))
    constants = {}
    for digest, array in weights.items():
        constants[digest] = {"offset": offset, "nbytes": array.nbytes, "dtype": NAMES[array.dtype]}
        offset += _up(array.nbytes)
    target = artifact.target
    fields = {
        "alpenglow": version("alpenglow"),
        "llvm": ".".join(map(str, llvm.llvm_version_info)),
        "program": artifact.program.name,
        "target": {
            "name": target.name,
            "triple": target.triple,
            "cpu": target.cpu,
            "features": list(target.features),
        },
        "nbytes": offset,
        "sections": places,
        "kernels": {name: len(image) for name, image in artifact.objects.items()},
        "weights": constants,
        "metadata": artifact.metadata.plain(),
    }
    return json.dumps(fields, indent=1).encode()


def unpack(view: memoryview, *, ours: bool = False, foreign: bool = False) -> Artifact:
    """Return the artifact in the bytes of an archive, of which its weights are views.

    What this process or one like it wrote is `ours`: its bytes have been checked, and were made for
    this machine or to be looked at.  Others' are checked, and refused if this machine cannot run
    them, unless they may be `foreign`.
    """
    header, body = _split(view)
    try:
        fields = json.loads(bytes(header))
        target = Target(**{**fields["target"], "features": tuple(fields["target"]["features"])})
        if not ours and not foreign:
            _check_host(target, fields)
        if len(body) != fields["nbytes"]:
            raise ValueError(f"it has {len(body)} bytes behind the header, not {fields['nbytes']}")
        program, table, kernels = (
            _section(body, name, fields["sections"][name])
            for name in ("program", "table", "kernels")
        )
        objects = _objects(kernels, fields["kernels"])
        weights = {digest: _constant(body, place) for digest, place in fields["weights"].items()}
        entries = tuple(
            Entry(str(kernel), int(extent), stops=bool(stops), faults=bool(faults))
            for kernel, extent, stops, faults in json.loads(bytes(table))
        )
        text = str(program, "utf-8")
        # Archives of older versions have none.
        metadata = of_plain(fields.get("metadata", {}))
    except NONSENSE as error:
        raise ModelError(f"the archive is damaged: {error}") from None
    parsed = _parsed(text, weights, fields, ours)
    artifact = Artifact(target, parsed, objects, entries, metadata=metadata)
    _check_whole(artifact, weights)
    return artifact


def _split(view: memoryview) -> tuple[memoryview, memoryview]:
    """Return the header, checked, and what follows it."""
    if len(view) < PREFIX.size or bytes(view[: len(MAGIC)]) != MAGIC:
        raise ModelError(
            "this is no Alpenglow archive",
            hint="compile(…) takes models; open(…) takes what Executable.save wrote",
        )
    _, form, convention, nbytes, digest = PREFIX.unpack(view[: PREFIX.size])
    for what, found, expected in (
        ("format version", form, FORMAT),
        ("kernel calling convention", convention, CONVENTION),
    ):
        if found != expected:
            raise IncompatibleError(
                f"the archive has {what} {found}, this Alpenglow ({version('alpenglow')}) "
                f"expects {expected}",
                hint="compile the model again with this version",
            )
    header = view[PREFIX.size : PREFIX.size + nbytes]
    if len(header) != nbytes or hashlib.sha256(header).digest() != digest:
        raise ModelError("the archive is damaged: its header has another checksum")
    return header, view[PREFIX.size + _up(nbytes) :]


def _check_host(target: Target, fields: Mapping[str, Any]) -> None:
    """Raise IncompatibleError, naming what is missing, if code for `target` cannot run here."""
    if not fields["kernels"] or target.is_host_compatible():
        return
    host = Target.parse("cpu")
    lacking = sorted({f for f in target.features if f.startswith("+")} - set(host.features))
    same = (target.architecture, target.os) == (host.architecture, host.os)
    what = f"needs {' '.join(lacking)}" if same else f"is for {target.triple}"
    raise IncompatibleError(
        f"the archive holds code for target '{target.name}', which {what}; "
        f"this machine is {host.triple}, {host.cpu}",
        hint="compile the model for this machine, or for a level that both have",
    )


def _section(body: memoryview, name: str, place: Mapping[str, Any]) -> memoryview:
    found = Extent(place["offset"], place["nbytes"]).within(body)
    if hashlib.sha256(found).hexdigest() != place["sha256"]:
        raise ValueError(f"section '{name}' has another checksum")
    return found


def _objects(kernels: memoryview, sizes: Mapping[str, int]) -> dict[str, bytes]:
    found, offset = {}, 0
    for name, nbytes in sizes.items():
        found[name] = bytes(Extent(offset, nbytes).within(kernels))
        offset += nbytes
    return found


def _constant(body: memoryview, place: Mapping[str, Any]) -> Array:
    found = Extent(place["offset"], place["nbytes"]).within(body)
    return np.frombuffer(found, DTYPES[place["dtype"]])


def _parsed(
    text: str, weights: Mapping[str, Array], fields: Mapping[str, Any], ours: bool
) -> Program:
    """Return the program; its text is as it was written, so what is not understood is newer."""
    try:
        return parse_program(text, weights, trusted=ours)
    except AlpenglowError as error:
        raise IncompatibleError(
            f"the archive was written by Alpenglow {fields.get('alpenglow', '?')}, whose program "
            f"this version, {version('alpenglow')}, cannot read: {error.message}",
            hint="compile the model again, with the same extensions installed",
        ) from None


def _check_whole(artifact: Artifact, weights: Mapping[str, Array]) -> None:
    """Check what only the parsed program can tell: the weights' contents, and the table."""
    if side_weights(artifact.program).keys() != weights.keys():
        # Digests are those of the bytes, computed when they were parsed.
        raise ModelError("the archive is damaged: weights have another checksum")
    named = {e.kernel for e in artifact.table if e.kernel}
    if named - artifact.objects.keys() or len(artifact.table) != len([*artifact.program.instrs()]):
        raise ModelError("the archive is damaged: its table does not belong to its program")


def _padded(part: bytes | memoryview) -> Iterator[bytes | memoryview]:
    yield part
    yield bytes(-len(part) % ALIGNMENT)


def _up(nbytes: int) -> int:
    return nbytes + -nbytes % ALIGNMENT


def _flat(array: Array) -> Array:
    """Return the bytes of an array, row by row."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
