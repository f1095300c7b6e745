"""Executables: an artifact installed in this process, ready to be called.

A call takes an arena from a pool, writes the addresses of inputs and outputs into the argument
table, and lets compiled code walk the table.  Instructions without a kernel are interpreted on
the same memory.  Calls from several threads run side by side, each in an arena of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from alpenglow.backends.api import Artifact
from alpenglow.backends.cpu.jit import Code
from alpenglow.base.errors import FeedError, OptionError, UnsupportedError
from alpenglow.base.memory import aligned, aligned_bytes
from alpenglow.ir.types import DTYPES, FLOATS, Array, TensorType
from alpenglow.program import Instr, Region
from alpenglow.program.interpret import Memory, step
from alpenglow.runtime import archive
from alpenglow.runtime.team import Team, default_threads


def open(path: str | os.PathLike[str], threads: int | None = None) -> Executable:
    """Return the Executable that `Executable.save` wrote to `path`, without compiling anything.

    Weights are mapped from the file, not copied: replace an open archive, never write into it.
    Raises ModelError if the file is no archive or damaged, and IncompatibleError if this version
    or this machine cannot run it; both before any of its code is loaded.  An archive is a program:
    open only what you would run.
    """
    check_threads(threads)
    return Executable(archive.read(path), threads)


def check_threads(threads: int | None) -> None:
    """Raise OptionError if `threads` is no number of threads to run on."""
    if threads is not None and threads < 1:
        raise OptionError(f"threads is {threads}, expected at least 1")


@dataclass(frozen=True, slots=True)
class Span:
    """Entries [begin, end) of the table: compiled, or one interpreted instruction."""

    begin: int
    end: int
    instr: Instr | None = None


class Context:
    """The memory of one running call: an arena, the argument table, and the table to walk."""

    def __init__(self, exe: Executable) -> None:
        program = exe.artifact.program
        self.arena = aligned_bytes(program.arena)
        self.args = exe.template.copy()
        self.args[exe.arena_slots] += np.uint64(self.arena.ctypes.data)
        self.table = np.zeros((max(len(exe.kernels), 1), 3), np.uint64)
        for i, (function, first, extent) in enumerate(exe.kernels):
            self.table[i] = (function, self.args.ctypes.data + 8 * first, extent)
        self.base = self.table.ctypes.data
        interpreted = any(s.instr is not None for s in exe.spans)
        self.memory = Memory(program, self.arena) if interpreted else None


class Executable:
    """A compiled model.  Call it with arrays in input order, or `run` it by name.

    One that was compiled for another machine can be saved, but not run.
    """

    def __init__(self, artifact: Artifact, threads: int | None = None) -> None:
        self.artifact = _aligned(artifact)
        self.threads = threads
        program = artifact.program
        self.inputs: dict[str, TensorType] = _types(artifact, program.inputs)
        # Inside, outputs go by the names of their buffers; the caller may call them otherwise.
        self._made: dict[str, TensorType] = _types(artifact, program.outputs)
        self._called = {name: program.names.get(name, name) for name in program.outputs}
        self.outputs: dict[str, TensorType] = {self._called[n]: t for n, t in self._made.items()}
        self._forms = {n: (t.numpy, t.extents) for n, t in (self.inputs | self._made).items()}
        self._pool: list[Context] = []
        self._runs_here = not artifact.objects or artifact.target.is_host_compatible()
        if self._runs_here:
            self._code = Code.install(list(artifact.objects.values()), list(artifact.objects))
            self._lay_out()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write this Executable to `path` (by custom, `.ago`) for `open` to read.

        The file is complete or not there at all.  Raises OSError where it cannot be written.
        """
        archive.write(self.artifact, path)

    def _lay_out(self) -> None:
        """Fill the argument table with what does not change from call to call."""
        program = self.artifact.program
        args: list[int] = []
        arena: list[int] = []
        # Where the addresses of inputs and outputs go, and what is added to them.
        self._slots: dict[str, list[tuple[int, int]]] = {
            n: [] for n in (*program.inputs, *program.outputs)
        }
        self.kernels: list[tuple[int, int, int]] = []
        self.spans: list[Span] = []
        for entry, instr in zip(self.artifact.table, program.instrs(), strict=True):
            count = len(self.kernels)
            if not entry.kernel:
                self.spans.append(Span(count, count, instr))
                continue
            self.kernels.append((self._code.address(entry.kernel), len(args), entry.extent))
            if self.spans and self.spans[-1].instr is None:
                self.spans[-1] = Span(self.spans[-1].begin, count + 1)
            else:
                self.spans.append(Span(count, count + 1))
            for r in (*instr.outs, *(r for r in instr.ins if r is not None)):
                args.append(self._address(r, len(args), arena))
        self.template = np.array(args, np.uint64)
        self.arena_slots = np.array(arena, np.intp)

    def _address(self, r: Region, slot: int, arena: list[int]) -> int:
        """Return what is known of the address of a region; the rest is added for each call."""
        b = self.artifact.program.buffers[r.buffer]
        offset = r.offset * r.type.numpy.itemsize
        if b.space == "const":
            assert b.array is not None, f"{b.name} is a constant without contents"
            return int(b.array.ctypes.data) + offset
        if b.space == "arena":
            assert b.offset is not None, f"{b.name} has no place in the arena"
            arena.append(slot)
            return b.offset + offset
        self._slots[r.buffer].append((slot, offset))
        return 0

    def __call__(self, *arrays: Any) -> Any:
        """Return the output for arrays in input order; a tuple if there are several outputs."""
        if len(arrays) != len(self.inputs):
            names = ", ".join(self.inputs)
            raise FeedError(f"got {len(arrays)} arrays, expected {len(self.inputs)}: {names}")
        results = tuple(self.run(dict(zip(self.inputs, arrays, strict=True))).values())
        return results[0] if len(results) == 1 else results

    def run(
        self, feeds: Mapping[str, Any], out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Return the outputs by name.

        `feeds` holds an array (or anything with DLPack or the array interface) for each input;
        `out` may name arrays to write outputs into.  Raises FeedError where names, shapes or
        element types do not fit.
        """
        if not self._runs_here:
            raise UnsupportedError(
                f"code for target '{self.artifact.target}' does not run on this machine",
                hint="save it and open it there, or compile with target='cpu' to run here",
            )
        given = self._feeds(feeds)
        results, direct = self._results(out or {}, given)
        try:
            context = self._pool.pop()
        except IndexError:
            context = Context(self)
        try:
            self._walk(context, given, direct)
        finally:
            self._pool.append(context)
        if out:
            for name, array in results.items():
                if array is not direct[name]:
                    array[...] = direct[name]
        return {self._called[name]: array for name, array in results.items()}

    def _walk(self, c: Context, given: Mapping[str, Array], results: Mapping[str, Array]) -> None:
        threads = self.threads or default_threads()
        for name, array in (*given.items(), *results.items()):
            address = array.__array_interface__["data"][0]  # cheaper than ctypes.data
            for slot, offset in self._slots[name]:
                c.args[slot] = address + offset
            if c.memory is not None:
                c.memory.bytes[name] = _bytes_of(array)
        team = Team.shared()
        for span in self.spans:
            if span.instr is not None:
                assert c.memory is not None
                step(c.memory, span.instr)
            else:
                team.run(c.base + 24 * span.begin, span.end - span.begin, threads)
        if c.memory is not None:
            # The caller's arrays are not held on to.
            for name in self._slots:
                del c.memory.bytes[name]

    def _feeds(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        if feeds.keys() != self.inputs.keys():
            missing = ", ".join(sorted(self.inputs.keys() - feeds.keys())) or "nothing"
            extra = ", ".join(sorted(map(str, feeds.keys() - self.inputs.keys()))) or "nothing"
            raise FeedError(f"feeds lack {missing} and hold {extra} that is no input")
        return {name: self._feed(name, feeds[name], t) for name, t in self.inputs.items()}

    def _feed(self, name: str, value: Any, t: TensorType) -> Array:
        dtype, shape = self._forms[name]
        array = _as_array(name, value, t)
        if array.dtype is not dtype and array.dtype.newbyteorder("=") != dtype:
            raise FeedError(f"input '{name}' is {array.dtype}, expected {dtype} ({t})")
        if array.shape != shape:
            raise FeedError(f"input '{name}' has shape {array.shape}, expected {shape}")
        flags = array.flags
        if array.dtype is dtype and flags.c_contiguous and flags.aligned:
            return array
        return np.require(array, dtype, ("C", "A"))

    def _results(
        self, out: Mapping[str, Array], given: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the arrays to hand back, and those that the code writes (mostly the same)."""
        if not out:
            made = {}
            for name in self._made:
                dtype, shape = self._forms[name]
                made[name] = np.empty(shape, dtype)
            return made, made
        if unknown := out.keys() - self.outputs.keys():
            names = ", ".join(sorted(map(str, unknown)))
            raise FeedError(f"out names {names}; outputs are {', '.join(self.outputs)}")
        results, direct = {}, {}
        for name, t in self._made.items():
            if (called := self._called[name]) not in out:
                results[name] = direct[name] = np.empty(t.extents, t.numpy)
                continue
            array = results[name] = _writeable(called, out[called], t)
            dense = array.flags.c_contiguous and array.flags.aligned
            # An output that lies on an input would change it under way.
            if not dense or any(np.may_share_memory(array, a) for a in given.values()):
                array = np.empty(t.extents, t.numpy)
            direct[name] = array
        for a, b in combinations(direct, 2):
            if np.may_share_memory(direct[a], direct[b]):
                raise FeedError(f"out['{a}'] and out['{b}'] are the same memory")
        return results, direct


def _types(artifact: Artifact, names: Sequence[str]) -> dict[str, TensorType]:
    found = {}
    for name in names:
        t = artifact.program.buffers[name].type
        assert t is not None
        found[name] = t
    return found


def _aligned(artifact: Artifact) -> Artifact:
    """Return the artifact with each constant at an address that vectors like."""
    program = artifact.program
    buffers = {
        name: b if b.array is None else replace(b, array=aligned(b.array))
        for name, b in program.buffers.items()
    }
    return replace(artifact, program=replace(program, buffers=buffers))


def _bytes_of(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)


def _writeable(name: str, array: Any, t: TensorType) -> Array:
    """Return what the caller gave for an output, if the output can be written there."""
    if not isinstance(array, np.ndarray):
        raise FeedError(f"out['{name}'] is a {type(array).__name__}, expected a NumPy array")
    if array.shape != t.extents or array.dtype != t.numpy or not array.flags.writeable:
        kind = "" if array.flags.writeable else "read-only "
        found = f"a {kind}{array.dtype}{array.shape}"
        raise FeedError(f"out['{name}'] is {found}, expected a writeable {t.numpy}{t.extents}")
    return array


def _as_array(name: str, value: Any, t: TensorType) -> Array:
    """Return anything array-like as an array, without a copy where there is a protocol for it."""
    if isinstance(value, np.ndarray):
        return value
    try:
        if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
            return np.asarray(value)
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        found = np.asarray(value)
        # Python's numbers have no width: they take that of the input, if they are of its kind.
        alike = found.dtype.kind in _KINDS[t.dtype]
        return np.asarray(value, t.numpy) if alike else found
    except (TypeError, ValueError, OverflowError, BufferError, RuntimeError) as error:
        raise FeedError(f"input '{name}' cannot be read as {t.numpy} ({t}): {error}") from error


_KINDS = {n: "f" if n in FLOATS else "b" if n == "bool" else "iu" for n in DTYPES}
