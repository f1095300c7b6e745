"""Compilations kept whole in the store: a second process maps the weights and skips every pass.

An artifact is kept under the text of its graph, its metadata and everything else that it depends
on.  Under the bytes of a model file stands which one that was, so that a file met before is not
even read as a model.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from alpenglow.base import extensions, knobs
from alpenglow.base.errors import NONSENSE
from alpenglow.base.mapped import Stamp, stamp_of
from alpenglow.base.store import Store
from alpenglow.compiler import Options, compile_graph
from alpenglow.driver import journal
from alpenglow.frontends.registry import frontends
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.ir.text import print_graph
from alpenglow.machines.api import Artifact
from alpenglow.machines.registry import machine_for
from alpenglow.runtime.archive import archive

KEPT_NBYTES = 256 << 20
"""Larger artifacts are not kept: they would push everything else out of the store."""

LARGEST_NBYTES = 2 * KEPT_NBYTES
"""Weights of more bytes are not even hashed: in halves they would still be too large to keep."""

NOTHING: tuple[str, Stamp | None] = ("", None)
"""The hash and the stamp of a file that is not kept."""

Shapes = Mapping[str, Sequence[int]]
Constants = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ArtifactCache:
    """Where the compilation of a model file is kept."""

    store: Store
    target: Target
    options: Options
    path: str
    file: str
    """What the file and what is asked of its import hash to; empty where other files matter too."""
    stamp: Stamp | None
    """Of the file as it was hashed."""

    @staticmethod
    def of(
        model: object, shapes: Shapes, constants: Constants, rounding: str | None,
        target: Target, options: Options, store: Store,
    ) -> ArtifactCache | None:  # fmt: skip
        """Return the cache for a model file; None for what is not kept."""
        told = isinstance(shapes, Mapping) and isinstance(constants, Mapping)
        if not isinstance(model, str | Path) or not told:
            return None
        if store.folder is None or not _is_plain(options):
            return None
        hashed, stamp = _hash_of(model, shapes, constants, rounding)
        return ArtifactCache(store, target, options, str(model), hashed, stamp)

    def artifact(self) -> Artifact | None:
        """Return what was made of this very file before, if it is still there."""
        return journal.found(self.path, self._of_file)

    def _of_file(self) -> Artifact | None:
        key = self.store.get(self._alias) if self.file else None
        return None if key is None else self._unpacked(key.decode())

    def make(self, g: Graph) -> Artifact:
        """Return what was made of this graph before; else compile it, using it up, and keep it."""
        if sum(v.type.nbytes for v in g.constants()) > LARGEST_NBYTES:
            return self._compiled(g)
        told = f"{print_graph(g)}\n{g.metadata}"
        key = f"artifact {hashlib.sha256(told.encode()).hexdigest()} {self._settings}"
        artifact = journal.found(g.name, lambda: self._unpacked(key))
        if artifact is None:
            artifact = self._compiled(g)
            if archive.nbytes(artifact) > KEPT_NBYTES:
                return artifact
            self.store.put(key, list(archive.parts(artifact)))
        if self.file and self._is_same():
            self.store.put(self._alias, key.encode())
        return artifact

    def _is_same(self) -> bool:
        """Return True if the file that was imported is the one that was hashed."""
        try:
            return Stamp.of(os.stat(self.path)) == self.stamp
        except OSError:
            return False

    def _compiled(self, g: Graph) -> Artifact:
        make = partial(compile_graph, g, self.target, self.options, self.store, owned=True)
        return journal.compiled(g.name, f"compile of {self.path}", self.store, make)

    @property
    def _alias(self) -> str:
        return f"model {self.file} {self._settings}"

    @property
    def _settings(self) -> str:
        readers = " ".join(f"{f.name}{f.version}" for f in frontends())
        versions = f"{machine_for(self.target).version} numpy{np.__version__} {readers}"
        record = hashlib.sha256(str(self.options.record).encode()).hexdigest()
        o = self.options
        chosen = (o.numerics, o.precision, o.keep, o.indices, o.activations, o.memory_nbytes)
        return f"{astuple(self.target)} {chosen} {versions} {record} {_sources()}"

    def _unpacked(self, key: str) -> Artifact | None:
        content = self.store.open_map(key)
        if content is None:
            return None
        archived = archive.unpack(content, ours=True)
        assert isinstance(archived, Artifact), "only whole artifacts are kept"
        return archived


def _hash_of(
    model: str | Path, shapes: Shapes, constants: Constants, rounding: str | None
) -> tuple[str, Stamp | None]:
    """Return a hash of a file, of shapes, of constants, and of how integers are rounded; its stamp.

    It is "" if what is made of the file is too large to be kept, or other files matter, too, or it
    cannot be read.
    """
    try:
        with open(model, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= LARGEST_NBYTES:
                return NOTHING
            stamp = stamp_of(file.fileno())
            content = file.read()
    except (OSError, ValueError):
        return NOTHING
    if any(f.may_read_more(content) for f in frontends()):
        return NOTHING
    digest = hashlib.sha256(content)
    del content
    digest.update(repr((sorted(shapes.items(), key=str), rounding)).encode())
    try:
        for name in sorted(constants, key=str):
            # A number fills the shape of its input, an array has it; a list takes its type.
            value = constants[name]
            array = np.asarray(value)
            digest.update(f"{name!r} {type(value)} {array.dtype} {array.shape} ".encode())
            digest.update(array.tobytes() if array.dtype != object else repr(value).encode())
    except NONSENSE:  # whatever is no array is refused as the model is read
        return NOTHING
    return digest.hexdigest(), stamp


def _is_plain(options: Options) -> bool:
    """Whether what is compiled depends on this package's sources and the model alone."""
    check = knobs.check() if options.check is None else options.check
    if check or options.passes or options.after is not None:
        return False
    groups = ("extensions", "frontends", "machines")
    brought = [e for g in groups for e in extensions.entries(f"alpenglow.{g}").values()]
    return all(e.value.startswith("alpenglow.") for e in brought)


@functools.cache
def _sources() -> str:
    """Return a hash of all sources of this package."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
