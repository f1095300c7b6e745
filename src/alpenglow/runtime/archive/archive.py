"""Archives: what was compiled as one file, a `.ago`, ready to run without compiling.

    offset 0   magic (8 bytes), format version (4), kernel calling convention (4),
               length of the header (8), SHA-256 of the header (32), zeros up to 64
    header     JSON: who wrote it, the target, and where everything lies (`_header`)
    sections   of each artifact: program text, table, kernels; where extents are open, the text of
               the graph, and of a staged model that of its stages; weights; each at a multiple of
               64 bytes
    signature  if it is signed (`runtime.archive.signature`)

Every constant begins at a multiple of 64 bytes too, so weights are used where a mapped file has
them.  Reading checks the header against the prefix, code and table against the header, and each
constant against its CRC-32 or, where a key must have signed the archive, against the digest by
which the program's text names it.  Without a key that finds damage, not malice: an archive holds
machine code, and whoever runs it trusts whoever wrote it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from alpenglow.base import whole
from alpenglow.base.errors import (
    NONSENSE,
    AlpenglowError,
    DeviceError,
    IncompatibleError,
    ModelError,
    OptionError,
    ParseError,
)
from alpenglow.base.mapped import Mapped, maps_of, read_into
from alpenglow.base.memory import ALIGNMENT, COPIED_NBYTES, aligned_bytes, bytes_of, rounded_up
from alpenglow.ir import text as graph_text
from alpenglow.ir.graph import Graph
from alpenglow.ir.metadata import NONE, of_plain
from alpenglow.ir.side import SideWeights, crc32_of
from alpenglow.ir.target import Facts, Target
from alpenglow.ir.types import DTYPES, NAMES, Array
from alpenglow.machines.api import CONVENTION, Artifact
from alpenglow.machines.registry import device_for, machine_for
from alpenglow.program.text import side_weights
from alpenglow.runtime.archive import artifact as archive_artifact
from alpenglow.runtime.archive import signature
from alpenglow.runtime.archive import staged as archive_staged
from alpenglow.runtime.archive.artifact import Extent
from alpenglow.runtime.staged.kept import StagedArchive

MAGIC = b"ALPENGO\n"
FORMAT = 5
"""The version of the file format: anything else is refused."""

PREFIX = struct.Struct("<8sIIQ32s8x")

DAMAGED = (*NONSENSE, RecursionError)
"""What Python raises where a header is not made as ours are."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenGraph:
    """A graph with open extents, how it is compiled, and what was compiled of it so far."""

    graph: Graph
    target: Target
    settings: Mapping[str, Any]
    artifacts: tuple[Artifact, ...]


Archived = Artifact | OpenGraph | StagedArchive
"""What an archive holds: an artifact, or what makes more of them."""

T = TypeVar("T")


def write(archived: Archived, path: str | os.PathLike[str]) -> None:
    """Write an archive to `path`, replacing what is there.

    The file gets its name when it is complete, so nobody ever sees a part of one.  Raises OSError
    where it cannot be written; then `path` is as it was.
    """

    def fill(file: BinaryIO) -> None:
        for part in parts(archived):
            file.write(part)

    whole.write(Path(path), fill)


def sign(path: Path, key: signature.Key, output: Path) -> None:
    """Write the archive at `path`, signed by a private key, to `output`, which may be `path`."""
    with _opened(path) as descriptor:
        content, _ = signature.parted(_content(descriptor, os.fspath(path), mapped=False))
        unpack(content, foreign=True)
        trailer = signature.sign(bytes(content[: PREFIX.size]), key)

    def fill(file: BinaryIO) -> None:
        file.write(content)
        file.write(trailer)

    whole.write(output, fill)


def to_bytes(archived: Archived) -> bytes:
    """Return an archive as `write` would write it."""
    return b"".join(parts(archived))


Content = bytes | bytearray | memoryview
"""An archive in memory."""


def read(
    source: str | os.PathLike[str] | Content,
    mapped: bool | None = None,
    key: signature.Key | None = None,
) -> Archived:
    """Return what an archive holds: the file of that name, or bytes, which are copied.

    Its weights are views of the file if that is `mapped`, otherwise of a copy in memory.  None maps
    what is larger than `COPIED_NBYTES`, unless a public `key` must have signed it: what was checked
    can then not change any more.  Raises SignatureError if it has not, ModelError if the file is no
    archive, is damaged or changes meanwhile, and IncompatibleError if its code cannot run here.
    """
    if isinstance(source, Content):
        if mapped:
            raise OptionError("mmap is True for an archive in memory, expected a file")
        return _checked(_copied(source), key)
    if not isinstance(source, str | os.PathLike):
        raise OptionError(
            f"the archive is a {type(source).__name__}, expected the path of a file, or its bytes"
        )
    with _opened(source) as descriptor:
        copies = False if mapped is None and key is not None else mapped
        content = _content(descriptor, os.fspath(source), copies)
        archived = _checked(content, key)
        if os.fstat(descriptor).st_size != len(content):
            raise ModelError(_CHANGES)
        if isinstance(content.obj, Mapped):
            content.obj.check()
        return archived


def read_mapped(
    path: str | os.PathLike[str], key: signature.Key | None = None
) -> tuple[Archived, Mapped]:
    """Return what an archive holds, whose weights are views of the file, and that file.

    Weights are looked at in passing: none stays in memory.  Raises what `read` does.
    """
    with _opened(path) as descriptor:
        content = _content(descriptor, os.fspath(path), mapped=True)
        if not isinstance(content.obj, Mapped):
            raise ModelError("the file is empty, expected an Alpenglow archive")
        archived = _checked(content, key, passing=True)
        content.obj.check()
        return archived, content.obj


def _checked(content: memoryview, key: signature.Key | None, passing: bool = False) -> Archived:
    """Return what an archive holds, whose signature is checked first if there is a `key`."""
    body, signed = signature.parted(content)
    if key is not None:
        signature.check(bytes(body[: PREFIX.size]), signed, key)
    return unpack(body, signed=key is not None, passing=passing)


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


def _content(descriptor: int, path: str, mapped: bool | None) -> memoryview:
    """Return the bytes of an open file: mapped, or a copy."""
    nbytes = os.fstat(descriptor).st_size
    if mapped is None:
        mapped = nbytes > COPIED_NBYTES
    if mapped and nbytes:  # an empty file cannot be mapped
        return memoryview(Mapped(descriptor, path))
    copy = aligned_bytes(nbytes).data
    if read_into(descriptor, 0, copy) < nbytes or os.fstat(descriptor).st_size != nbytes:
        raise ModelError(_CHANGES)
    return copy.toreadonly()


def parts(archived: Archived) -> Iterator[bytes | memoryview]:
    """Yield the bytes of an archive, from first to last."""
    artifacts = artifacts_of(archived)
    sections: dict[str, bytes] = {}
    weights: dict[str, Array] = {}
    for i, artifact in enumerate(artifacts):
        sections |= archive_artifact.sections(i, artifact)
        weights |= side_weights(artifact.program)
    match archived:
        case OpenGraph(graph=graph):
            sections["graph"] = graph_text.print_graph(graph).encode()
            weights |= graph_text.side_weights(graph)
        case StagedArchive(model=model):
            sections["stages"] = archive_staged.print_staged(model).encode()
            weights |= archive_staged.weights(model)
    files = maps_of(weights.values())
    for file in files:
        file.check()
    header = _header(archived, sections, weights)
    prefix = PREFIX.pack(MAGIC, FORMAT, CONVENTION, len(header), hashlib.sha256(header).digest())
    for part in (prefix, header, *sections.values()):
        yield from _padded(part)
    for array in weights.values():
        yield from _padded(bytes_of(np.ascontiguousarray(array)).data)
    for file in files:
        file.check()


def artifacts_of(archived: Archived) -> tuple[Artifact, ...]:
    """Return all that is compiled in an archive."""
    match archived:
        case Artifact():
            return (archived,)
        case OpenGraph(artifacts=artifacts):
            return artifacts
        case StagedArchive(model=model):
            return archive_staged.artifacts(model)


def nbytes(artifact: Artifact) -> int:
    """Return about how long the archive of `artifact` is: its weights and code."""
    weights = sum(array.nbytes for array in side_weights(artifact.program).values())
    return weights + sum(map(len, artifact.objects.values()))


def _header(
    archived: Archived, sections: Mapping[str, bytes], weights: Mapping[str, Array]
) -> bytes:
    """Return the header.  Offsets count from its padded end, so that its length is no matter."""
    offset = 0
    places: dict[str, Any] = {}
    for name, content in sections.items():
        digest = hashlib.sha256(content).hexdigest()
        places[name] = {"offset": offset, "nbytes": len(content), "sha256": digest}
        offset += rounded_up(len(content))
    constants = {}
    for digest, array in weights.items():
        constants[digest] = {
            "offset": offset,
            "nbytes": array.nbytes,
            "dtype": NAMES[array.dtype],
            "crc32": crc32_of(array),
        }
        offset += rounded_up(array.nbytes)
    settings: Mapping[str, Any] | None = None
    match archived:
        case Artifact(program=program, metadata=metadata):
            name = program.name
        case (
            OpenGraph(graph=whole, settings=settings)
            | StagedArchive(model=whole, settings=settings)
        ):
            name, metadata = whole.name, whole.metadata
    fields = {
        "alpenglow": version("alpenglow"),
        "compiler": machine_for(archived.target).version,
        "program": name,
        "target": asdict(archived.target),
        "nbytes": offset,
        "sections": places,
        "artifacts": [archive_artifact.described(a) for a in artifacts_of(archived)],
        "weights": constants,
        "metadata": metadata.plain(),
    }
    if settings is not None:
        fields["settings"] = dict(settings)
    return json.dumps(fields, indent=1).encode()


def unpack(
    view: memoryview, *, ours: bool = False, foreign: bool = False, signed: bool = False,
    passing: bool = False,
) -> Archived:  # fmt: skip
    """Return what the bytes of an archive hold; its weights are views of them.

    What this process or one like it wrote is `ours`: its bytes have been checked, and were made for
    this machine or to be looked at.  Others' are checked, and refused if this machine cannot run
    them, unless they may be `foreign`.  Of what is `signed`, weights are hashed: a CRC-32 is no
    proof that nobody has changed them.  In `passing`, they leave memory once they are checked.
    """
    header, body = _split(view)
    try:
        fields = json.loads(bytes(header))
        target = _target(fields["target"])
        if not ours and not foreign:
            _check_host(target, fields)
        if len(body) != fields["nbytes"]:
            found, wanted = len(body), fields["nbytes"]
            raise ValueError(f"it has {found} bytes behind the header, expected {wanted}")
        sections = {name: _section(body, name, place) for name, place in fields["sections"].items()}
        places = fields["weights"]
        sums = {d: int(p["crc32"]) for d, p in places.items() if "crc32" in p and not signed}
        weights = SideWeights(
            {d: _constant(body, place) for d, place in places.items()}, sums, passing
        )
        # Archives of older versions have none.
        metadata = of_plain(fields.get("metadata", {}))
        compiled = [
            archive_artifact.unpacked(i, sections, one) for i, one in enumerate(fields["artifacts"])
        ]
        grows = not _GROWING.isdisjoint(sections)
        settings = dict(fields["settings"]) if grows else {}
        if not grows and (len(compiled) != 1 or compiled[0].values):
            raise ValueError(f"it holds {len(compiled)} programs, expected 1 of fixed dimensions")
    except (*DAMAGED, ParseError) as error:
        raise archive_artifact.damaged(error) from None
    said = NONE if "stages" in sections else metadata  # a part is called by the runtime alone
    artifacts = [
        _read(
            fields,
            partial(archive_artifact.artifact, one, weights, target, said, trusted=ours),
        )
        for one in compiled
    ]
    if not grows:
        _check_weights(weights, artifacts)
        return artifacts[0]
    if "stages" in sections:
        stages = sections["stages"]
        model = _read(
            fields,
            lambda: archive_staged.parse_staged(str(stages, "utf-8"), weights, artifacts, metadata),
        )
        _check_weights(weights, artifacts, lambda: archive_staged.weights(model))
        return StagedArchive(model, target, settings)
    text = sections["graph"]
    graph = _read(fields, lambda: graph_text.parse_graph(str(text, "utf-8"), weights))
    _check_weights(weights, artifacts, lambda: graph_text.side_weights(graph))
    graph.metadata = metadata
    return OpenGraph(graph, target, settings, tuple(artifacts))


_GROWING = frozenset({"graph", "stages"})
"""Sections of what is compiled further as it is called."""


def _target(fields: Mapping[str, Any]) -> Target:
    """Return the target that `asdict` made fields of, whose lists were tuples."""

    def tuples(v: Any) -> Any:
        return tuple(map(tuples, v)) if isinstance(v, list) else v

    facts = Facts(**{name: tuples(v) for name, v in fields["facts"].items()})
    return Target(**{**fields, "features": tuples(fields["features"]), "facts": facts})


def _split(view: memoryview) -> tuple[memoryview, memoryview]:
    """Return the header, checked, and what follows it."""
    if len(view) < PREFIX.size or bytes(view[: len(MAGIC)]) != MAGIC:
        raise ModelError(
            "this is no Alpenglow archive",
            hint="compile(…) takes models; open(…) takes what Executable.save wrote",
        )
    _, form, convention, nbytes, digest = PREFIX.unpack(view[: PREFIX.size])
    for what, number, expected in (
        ("format version", form, FORMAT),
        ("kernel calling convention", convention, CONVENTION),
    ):
        if number != expected:
            raise IncompatibleError(
                f"the archive has {what} {number}, this Alpenglow ({version('alpenglow')}) "
                f"expects {expected}",
                hint="compile the model again with this version",
            )
    header = view[PREFIX.size : PREFIX.size + nbytes]
    if len(header) != nbytes or hashlib.sha256(header).digest() != digest:
        raise archive_artifact.damaged("its header has another checksum")
    return header, view[PREFIX.size + rounded_up(nbytes) :]


def _check_host(target: Target, fields: Mapping[str, Any]) -> None:
    """Raise IncompatibleError, naming what is missing, if code for `target` cannot run here."""
    holds_code = any(one["kernels"] for one in fields["artifacts"]) or not _GROWING.isdisjoint(
        fields["sections"]
    )
    if not holds_code or target.is_host_compatible():
        return
    try:
        device_for(target)
    except DeviceError as error:
        raise IncompatibleError(
            f"the archive holds code for target '{target.name}', which does not run here: "
            f"{error.message}",
            hint=error.hint,
        ) from None
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
    content = Extent(place["offset"], place["nbytes"]).within(body)
    if hashlib.sha256(content).hexdigest() != place["sha256"]:
        raise ValueError(f"section '{name}' has another checksum than expected")
    return content


def _constant(body: memoryview, place: Mapping[str, Any]) -> Array:
    content = Extent(place["offset"], place["nbytes"]).within(body)
    return np.frombuffer(content, DTYPES[place["dtype"]])


def _read(fields: Mapping[str, Any], parse: Callable[[], T]) -> T:
    """Return what a text says; it is as it was written, so what is not understood is newer."""
    try:
        return parse()
    except ModelError:
        raise
    except AlpenglowError as error:
        raise IncompatibleError(
            f"the archive was written by Alpenglow {fields.get('alpenglow', '?')}, and this "
            f"version, {version('alpenglow')}, cannot read its program: {error.message}",
            hint="compile the model again, with the same extensions installed",
        ) from None
    except DAMAGED as error:
        raise archive_artifact.damaged(error) from None


def _check_weights(
    weights: SideWeights,
    artifacts: Sequence[Artifact],
    others: Callable[[], Mapping[str, Array]] = dict,
) -> None:
    """Raise ModelError unless the weights are those that artifacts and `others` name."""
    weights.settle()
    named = {digest for a in artifacts for digest in side_weights(a.program)} | others().keys()
    if named != weights.keys():
        raise archive_artifact.damaged("weights have another checksum")


def _padded(part: bytes | memoryview) -> Iterator[bytes | memoryview]:
    yield part
    yield bytes(-len(part) % ALIGNMENT)
