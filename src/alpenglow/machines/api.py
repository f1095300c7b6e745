"""What a machine is to the compiler, and what it makes.

A machine knows targets and the facts about them.  It brings rows of the pass table, operators that
these make, kernels for what it compiles, and perhaps a device with memory of its own to run them
on.  `emit` is pure: it touches no device, so code for any target can be made anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from alpenglow.base.progress import Progress as Progress
from alpenglow.base.store import Store
from alpenglow.ir.dims import Dim, Sym
from alpenglow.ir.graph import Node
from alpenglow.ir.metadata import NONE, Metadata
from alpenglow.ir.op import Op
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array
from alpenglow.kernel.stmt import Kernel
from alpenglow.ops.control.jump import Jump
from alpenglow.passes.table import Choices, Pass, Reason
from alpenglow.program import Instr, Program


@dataclass(frozen=True, slots=True)
class Entry:
    """How one instruction runs: its kernel and the extent of the kernel's parallel loop.

    A kernel gets the addresses of the instruction's results, then of its operands, then, if it
    `stops`, of the stop word of the call (`kernel.stoppable`), then, if it `faults`, of a word of
    this entry (`kernel.faults`), then its run-time `extents`.  An entry without a kernel is
    interpreted, unless its instruction is a jump.

    A result may lie where an operand does if the operator is elementwise, for operands that only
    elementwise operators of a fused body read, and where an operator says so (`Op.carried`).

    On a device with memory of its own a kernel runs as a grid: `groups` of `threads`, each with up
    to three extents, the innermost first.  Without `threads` the device chooses their number.
    """

    kernel: str
    extent: Dim
    extents: tuple[Sym, ...] = ()
    stops: bool = False
    faults: bool = False
    groups: tuple[Dim, ...] = ()
    threads: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Artifact:
    """A compiled program: object code by kernel name, and the table that says what runs when.

    Where extents are open, it serves all that meet its `guards` (see `ir.dims.Assumption`); its
    types were inferred with `values` for the symbols.
    `metadata` is what the model says of itself, which a machine need not fill in.
    """

    target: Target
    program: Program
    objects: Mapping[str, bytes]
    table: tuple[Entry, ...]
    guards: tuple[tuple[Sym, str], ...] = ()
    metadata: Metadata = NONE
    values: Mapping[str, int] = field(default_factory=dict)

    def interpreted(self) -> list[Instr]:
        """Return the instructions without a kernel, but for jumps, which need none."""
        pairs = zip(self.table, self.program.instrs(), strict=True)
        return [i for entry, i in pairs if not entry.kernel and not isinstance(i.op, Jump)]


Argument = tuple[Any, int]
"""Where an operand lies on a device: memory that it allocated, and an offset into it in bytes."""

Event = Any
"""What a device was told to do and may not have done yet; None: it has."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel and all that it is given: the places of its results and operands, then, if it
    faults, that of an i64; the numbers of its run-time extents; and its grid (see `Entry`)."""

    kernel: str
    arguments: tuple[Argument, ...]
    numbers: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()


class Device(Protocol):
    """A device with memory of its own.  Memory and code are whatever it likes them to be.

    `dlpack` is its type and number as DLPack counts them.

    Uploads, downloads and kernels are three streams: what is begun in one of them is done in that
    order.  Across streams, what is begun waits for the events that it is to come `after`.
    """

    @property
    def dlpack(self) -> tuple[int, int]: ...

    def handle(self, memory: Any) -> int:
        """Return memory as DLPack hands it on: what the device's runtime knows it by."""
        ...

    def allocate(self, nbytes: int) -> Any:
        """Return new memory.  Raises MemoryError where there is not enough."""
        ...

    def free(self, memory: Any) -> None:
        """Give memory back, once what uses it is done."""
        ...

    def upload(self, memory: Any, offset: int, data: Array, after: Sequence[Event] = ()) -> Event:
        """Begin to copy bytes of the host, u8[n], to memory; they stay as they are until then."""
        ...

    def download(self, memory: Any, offset: int, data: Array, after: Sequence[Event] = ()) -> Event:
        """Begin to copy memory to bytes of the host, u8[n]."""
        ...

    def copy(
        self, to: Argument, source: Argument, nbytes: int, after: Sequence[Event] = ()
    ) -> Event:
        """Begin to copy memory to other memory, in the stream of kernels."""
        ...

    def install(self, artifact: Artifact) -> Any:
        """Return the code of an artifact, loaded.  Its entries do not stop."""
        ...

    def record(self, code: Any, launches: Sequence[Launch]) -> Any:
        """Return a list of launches that can be run many times, one after the other."""
        ...

    def replay(self, recording: Any, after: Sequence[Event] = ()) -> Event:
        """Begin to run a list."""
        ...

    def wait(self, event: Event) -> None:
        """Return when an event has happened.  Raises DeviceError where it failed."""
        ...

    def seconds(self, code: Any, launch: Launch) -> float:
        """Run a kernel alone and return how long it took on the device."""
        ...


ENTRY_NBYTES = 24
"""How long an entry of a table is that a process walks: the addresses of a kernel and of the row of
its operands' addresses, and the extent of the kernel's parallel loop, 8 bytes each."""

JUMPS: Mapping[bool | None, int] = {False: -1, True: -2, None: -3}
"""The extents of entries that jump: where a byte is false, where it is true, always."""

CONVENTION = 3
"""The version of how a table is walked and kernels are called (see `Entry`)."""


class Linked(Protocol):
    """Code in this process; whoever uses an address keeps it alive."""

    def address(self, symbol: str) -> int:
        """Return where the kernel `symbol` lies."""
        ...


@runtime_checkable
class HostDevice(Protocol):
    """What runs code in this process, on memory that NumPy shares."""

    def install(self, artifact: Artifact) -> Linked:
        """Return the code of an artifact, loaded."""
        ...

    def run(self, table_address: int, count: int, threads: int, stop_address: int = ...) -> None:
        """Run the `count` entries of a table on at most `threads` threads, this one included.

        Returns when all is done, or when what had begun has ended once the stop word, an i64 at
        `stop_address`, is not 0.  The table, the kernels and their operands must outlive that.
        """
        ...

    def run_with_jumps(
        self, table_address: int, count: int, threads: int, stop_address: int = ...
    ) -> None:
        """Run a table as `run` does that has jumps among its entries.

        Such an entry has one of `JUMPS` for an extent, in place of a kernel how many entries
        further on the next one is, and a byte for its only operand.
        """
        ...

    def own_team(self, threads: int) -> AbstractContextManager[None]:
        """Let runs of this thread in a block have at most so many threads, and those to themselves.

        They are started by this thread, and so run where it may.
        """
        ...


@runtime_checkable
class Readable(Protocol):
    """A machine that prints the code that it generates for a kernel."""

    languages: Sequence[str]
    """Names of the languages, as ``llvm`` and ``assembly``, in the order of generation."""

    def code(self, instr: Instr, target: Target, strict: bool, language: str) -> str:
        """Return the code of the kernel of an instruction in one of `languages`."""
        ...


class Machine(Protocol):
    """What the compiler asks of a machine.

    `name` is that of its entry point.  Machines of one `family` bring the same rows of the pass
    table; most have one of their own.  `targets` are the names that `target` knows, without
    features.  `reasons` say why its passes stand where they do.  `version` is that of what makes
    code beside the machine's own sources: what was compiled with another is not used again.
    """

    name: str
    family: str
    reasons: Sequence[Reason]
    version: str

    @property
    def targets(self) -> tuple[str, ...]:
        """The names that `target` knows, in the order in which messages list them."""
        ...

    def target(self, name: str, features: tuple[str, ...]) -> Target | None:
        """Return the target of this name; None if the machine knows none.

        Raises OptionError where features do not go with it.
        """
        ...

    def runs_here(self, target: Target) -> bool:
        """Return whether this process can run code for `target`."""
        ...

    def passes(self, choices: Choices) -> Sequence[Pass]:
        """Return its rows of the pass table, each with the pass `after` which it stands."""
        ...

    def stays_in_f32(self, node: Node, dtype: str, target: Target) -> bool:
        """Return whether a contraction of f32 is left so though the caller asks for `dtype`.

        That is for one which takes less time in f32; it is asked under fast numerics only.
        """
        ...

    def takes_epilogue(self, op: Op) -> bool:
        """Return whether elementwise operators that follow `op` can be computed with it."""
        ...

    def takes_prologue(self, op: Op) -> bool:
        """Return whether elementwise operators whose result `op` alone reads can be computed with
        it: as it reads, so once if it reads each element once."""
        ...

    def takes_attention(
        self, scores: Node, product: Node, target: Target, dtype: str | None = None
    ) -> bool:
        """Return whether one kernel computes a product of scores, its softmax, and the `product`
        of that by values, with what is elementwise in between.

        With a `dtype`, that is asked of operands of f32 which are rounded to it.
        """
        ...

    def lacks(self, op: Op) -> str:
        """Return why there is no code for `op`, which is then interpreted; "" if there is."""
        ...

    def refuses(self, instr: Instr, target: Target) -> str:
        """Return why an instruction is interpreted though it `lacks` nothing; "" if it is not."""
        ...

    def kernel(self, instr: Instr, target: Target) -> Kernel | None:
        """Return the kernel of an instruction, to be looked at; None if it is interpreted."""
        ...

    def emit(
        self, program: Program, target: Target, strict: bool, store: Store, progress: Progress
    ) -> Artifact:
        """Return the artifact for a planned program."""
        ...

    def device(self, target: Target) -> Device | HostDevice | None:
        """Return what runs artifacts; None leaves that to this process.

        Raises DeviceError, which says what is missing, if that is a device which is not here.
        """
        ...
