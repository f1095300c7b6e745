"""Random models as C: many of them in one file, built by gcc, called in this process.

A compiler takes longer to start than to read a small kernel, so the programs of a batch are the
entry points of one bundle.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpenglow.base.errors import FeedError
from alpenglow.bundles import parsed, planned
from alpenglow.bundles.c.source import source
from alpenglow.bundles.entry import OUT_OF_RANGE
from alpenglow.bundles.plan import BundlePlan, Routine, layout
from alpenglow.compiler import Options
from alpenglow.ir.graph import Graph
from alpenglow.program import Program

from . import guard
from .settings import Setting

Array = NDArray[Any]

TARGET = parsed("x86-64")
"""Whose kernels they are: as C they run anywhere."""

FLAGS = ("-std=c11", "-w", "-Wno-psabi", "-fPIC", "-shared", "-nostdlib")
SECONDS = 300.0


class BuildError(Exception):
    """gcc did not take what we wrote."""


def program(g: Graph, numerics: Any) -> Program:
    """Return the planned program of a graph, for a library."""
    return planned(g, TARGET, Options(numerics=numerics))


class Library:
    """Programs of one setting, by the number of their model, ready to be called.

    Raises UnsupportedError if C cannot say any of them.
    """

    def __init__(self, programs: Mapping[int, Program], setting: Setting) -> None:
        named = {f"net{k}": p for k, p in programs.items()}
        self.layout: BundlePlan = layout(named, TARGET, strict=setting.numerics == "strict")
        self.routines = {r.entry: r for r in self.layout.routines}
        self.constants = self.layout.weights()
        text = source(self.layout, "all", "static", False, setting.way == "portable")
        with tempfile.TemporaryDirectory(prefix="alpenglow-fuzz-") as folder:
            self.loaded = built(Path(folder), text, setting.level)

    def run(self, number: int, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Call a program between guards; return its outputs by name."""
        guards = guard.Guards()
        routine = self.routines[f"net{number}"]
        # An empty array has no address to speak of.
        constants = guards.bytes(len(self.constants) or 1, "the constants")
        constants[: len(self.constants)] = np.frombuffer(self.constants, np.uint8)
        mutable = guards.bytes(routine.mutable_nbytes or 1, "inputs and outputs")
        scratch = guards.bytes(routine.scratch_nbytes or 1, "the scratch")
        for s in routine.inputs:
            given = np.ascontiguousarray(feeds[s.name], s.type.numpy).reshape(-1)
            mutable[s.offset : s.offset + s.type.nbytes] = given.view(np.uint8)
        held = bytes(mutable[: _inputs_end(routine)])
        regions = [ctypes.c_void_p(a.ctypes.data) for a in (constants, mutable, scratch)]
        status = getattr(self.loaded, routine.entry)(*regions)
        if status == OUT_OF_RANGE:
            raise FeedError("an index is out of range")
        assert status == 0, f"the entry point returned {status}"
        guards.check()
        if bytes(constants[: len(self.constants)]) != self.constants:
            raise guard.Trespass("constants were written")
        if bytes(mutable[: _inputs_end(routine)]) != held:
            raise guard.Trespass("an input was written")
        return {
            s.name: mutable[s.offset : s.offset + s.type.nbytes]
            .view(s.type.numpy).reshape(s.type.extents).copy()
            for s in routine.outputs
        }  # fmt: skip


def _inputs_end(routine: Routine) -> int:
    return max((s.offset + s.type.nbytes for s in routine.inputs), default=0)


def built(folder: Path, text: str, level: int) -> ctypes.CDLL:
    """Compile the text of a file to a library, and load it: it stays when the folder is gone."""
    (folder / "all.h").write_text("#include <stdint.h>\n")
    (folder / "all.c").write_text(text)
    command = ["gcc", f"-O{level}", *FLAGS, "-o", str(folder / "all.so"), str(folder / "all.c")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise BuildError(done.stderr[:2000])
    return ctypes.CDLL(str(folder / "all.so"))
