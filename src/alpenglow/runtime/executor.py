"""Executables: an artifact installed in this process, ready to be called.

A call takes an arena from a pool, writes the addresses of inputs and outputs into the argument
table, and lets compiled code walk the table.  Instructions without a kernel are interpreted on
the same memory.  Calls from several threads run side by side, each in an arena of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpenglow.backends.api import Artifact
from alpenglow.backends.cpu.jit import Code
from alpenglow.base.errors import FeedError, UnsupportedError
from alpenglow.ir.types import Array, TensorType
from alpenglow.program import Instr, Region
from alpenglow.program.instr import ALIGNMENT
from alpenglow.program.interpret import Memory, step
from alpenglow.runtime.team import Team, default_threads


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
        self.raw = np.empty(program.arena + ALIGNMENT, np.uint8)
        skip = -self.raw.ctypes.data % ALIGNMENT
        self.arena = self.raw[skip : skip + program.arena]
        self.args = exe.template.copy()
        self.args[exe.arena_slots] += np.uint64(self.arena.ctypes.data)
        self.table = np.zeros((max(len(exe.kernels), 1), 3), np.uint64)
        for i, (function, first, extent) in enumerate(exe.kernels):
            self.table[i] = (function, self.args.ctypes.data + 8 * first, extent)
        interpreted = any(s.instr is not None for s in exe.spans)
        self.memory = Memory(program, self.arena) if interpreted else None


class Executable:
    """A compiled model.  Call it with arrays in input order, or `run` it by name."""

    def __init__(self, artifact: Artifact, threads: int | None = None) -> None:
        if artifact.objects and not artifact.target.is_host_compatible():
            raise UnsupportedError(
                f"code for {artifact.target} does not run on this machine",
                hint="compile with target='cpu' to run here",
            )
        self.artifact = artifact
        self.threads = threads
        program = artifact.program
        self.inputs: dict[str, TensorType] = _types(artifact, program.inputs)
        self.outputs: dict[str, TensorType] = _types(artifact, program.outputs)
        self._code = Code.install(list(artifact.objects.values()), list(artifact.objects))
        self._constants = _aligned_constants(artifact)
        self._pool: list[Context] = []
        self._lay_out()

    def _lay_out(self) -> None:
        """Fill the argument table with what does not change from call to call."""
        program = self.artifact.program
        args: list[int] = []
        arena: list[int] = []
        self.slots: dict[str, list[tuple[int, int]]] = {
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
        self._patches = {
            name: (
                np.array([s for s, _ in slots], np.intp),
                np.array([o for _, o in slots], np.uint64),
            )
            for name, slots in self.slots.items()
        }

    def _address(self, r: Region, slot: int, arena: list[int]) -> int:
        """Return what is known of the address of a region; the rest is added for each call."""
        b = self.artifact.program.buffers[r.buffer]
        offset = r.offset * r.type.numpy.itemsize
        if b.space == "const":
            return self._constants[r.buffer].ctypes.data + offset
        if b.space == "arena":
            assert b.offset is not None, f"{b.name} has no place in the arena"
            arena.append(slot)
            return b.offset + offset
        self.slots[r.buffer].append((slot, offset))
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
        given = self._feeds(feeds)
        results, direct = self._results(out or {})
        context = self._pool.pop() if self._pool else Context(self)
        try:
            self._walk(context, given, direct)
        finally:
            self._pool.append(context)
        for name, array in results.items():
            if array is not direct[name]:
                array[...] = direct[name]
        return results

    def _walk(self, c: Context, given: Mapping[str, Array], results: Mapping[str, Array]) -> None:
        threads = default_threads() if self.threads is None else self.threads
        for name, array in (*given.items(), *results.items()):
            slots, offsets = self._patches[name]
            c.args[slots] = offsets + np.uint64(array.ctypes.data)
            if c.memory is not None:
                c.memory.bytes[name] = _bytes_of(array)
        team = Team.shared()
        base = c.table.ctypes.data
        for span in self.spans:
            if span.instr is not None:
                assert c.memory is not None
                step(c.memory, span.instr)
            else:
                team.run(base + 24 * span.begin, span.end - span.begin, threads)

    def _feeds(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        if feeds.keys() != self.inputs.keys():
            missing = ", ".join(sorted(self.inputs.keys() - feeds.keys())) or "nothing"
            extra = ", ".join(sorted(map(str, feeds.keys() - self.inputs.keys()))) or "nothing"
            raise FeedError(f"feeds lack {missing} and hold {extra} that is no input")
        return {name: self._feed(name, feeds[name], t) for name, t in self.inputs.items()}

    def _feed(self, name: str, value: Any, t: TensorType) -> Array:
        array = _as_array(value)
        if array.dtype.newbyteorder("=") != t.numpy:
            raise FeedError(f"input '{name}' is {array.dtype}, expected {t.numpy} ({t})")
        if array.shape != t.extents:
            raise FeedError(f"input '{name}' has shape {array.shape}, expected {t.extents}")
        return np.require(array, t.numpy, ("C", "A"))

    def _results(self, out: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the arrays to hand back, and those that the code writes (mostly the same)."""
        if unknown := out.keys() - self.outputs.keys():
            raise FeedError(
                f"out names {', '.join(sorted(unknown))}; outputs are {', '.join(self.outputs)}"
            )
        results, direct = {}, {}
        for name, t in self.outputs.items():
            array = out.get(name)
            if array is None:
                results[name] = direct[name] = np.empty(t.extents, t.numpy)
                continue
            if array.shape != t.extents or array.dtype != t.numpy or not array.flags.writeable:
                raise FeedError(
                    f"out['{name}'] is {array.dtype}{array.shape}, expected a writeable {t}"
                )
            results[name] = array
            dense = array.flags.c_contiguous and array.flags.aligned
            # An output that overlaps an input would change it under way.
            direct[name] = array if dense else np.empty(t.extents, t.numpy)
        return results, direct


def _types(artifact: Artifact, names: Sequence[str]) -> dict[str, TensorType]:
    found = {}
    for name in names:
        t = artifact.program.buffers[name].type
        assert t is not None
        found[name] = t
    return found


def _aligned_constants(artifact: Artifact) -> dict[str, Array]:
    """Return the bytes of all constants, each at an address that vectors like."""
    found: dict[str, Array] = {}
    for name, b in artifact.program.buffers.items():
        if b.array is None:
            continue
        array = b.array
        if not array.flags.c_contiguous or array.ctypes.data % ALIGNMENT:
            raw = np.empty(array.nbytes + ALIGNMENT, np.uint8)
            skip = -raw.ctypes.data % ALIGNMENT
            place = raw[skip : skip + array.nbytes].view(array.dtype).reshape(array.shape)
            place[...] = array
            array = place
        found[name] = array
    return found


def _bytes_of(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)


def _as_array(value: Any) -> Array:
    """Return anything array-like as an array, without a copy where there is a protocol for it."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__"):
        return np.from_dlpack(value)
    return np.asarray(value)
