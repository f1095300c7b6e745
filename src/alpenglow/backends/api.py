"""What a backend is, and what it makes.

`emit` is pure: it touches no device, so code for any target can be made anywhere.  The artifact
holds the kernels, and a table with one entry an instruction; the runtime installs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from alpenglow.base.store import Store
from alpenglow.ir.dims import Dim, Sym
from alpenglow.ir.graph import Graph
from alpenglow.ir.metadata import NONE, Metadata
from alpenglow.ir.op import Op
from alpenglow.ir.target import Target
from alpenglow.program import Program

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many parts of it are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class Entry:
    """How one instruction runs: its kernel and the extent of the kernel's parallel loop.

    A kernel gets the addresses of the instruction's results, then of its operands, then, if it
    `stops`, of the stop word of the call (`kernel.stoppable`), then, if it `faults`, of a word of
    this entry (`kernel.faults`), then its run-time `extents`.  An entry without a kernel is
    interpreted.
    """

    kernel: str
    extent: Dim
    extents: tuple[Sym, ...] = ()
    stops: bool = False
    faults: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Artifact:
    """A compiled program: object code by kernel name, and the table that says what runs when.

    Where extents are open, it serves all that meet its `guards` (see `ir.dims.Assumption`).
    `metadata` is what the model says of itself, which a backend need not fill in.
    """

    target: Target
    program: Program
    objects: Mapping[str, bytes]
    table: tuple[Entry, ...]
    guards: tuple[tuple[Sym, str], ...] = ()
    metadata: Metadata = NONE


class Backend(Protocol):
    """What the compiler asks of a backend."""

    def accepts(self, target: Target) -> bool:
        """Whether this backend makes code for `target`."""
        ...

    def algorithms(self, g: Graph, target: Target) -> Graph:
        """Choose cheaper algorithms that round differently; runs under fast numerics only."""
        ...

    def layout(self, g: Graph, target: Target) -> Graph:
        """Rewrite a lowered graph into the layouts that the backend's kernels want."""
        ...

    def takes_epilogue(self, op: Op) -> bool:
        """Whether elementwise operators that follow `op` can be computed with it."""
        ...

    def compiles(self, op: Op) -> bool:
        """Whether the backend has code for `op`; what it has not is interpreted."""
        ...

    def emit(self, program: Program, target: Target, strict: bool, store: Store,
             progress: Progress) -> Artifact:  # fmt: skip
        """Return the artifact for a planned program."""
        ...
