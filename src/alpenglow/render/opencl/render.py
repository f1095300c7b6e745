"""Kernel language to OpenCL C.

The grid of a kernel maps to work groups and work items, the innermost loop to dimension 0.  A
kernel with a parallel loop has one work item an iteration; launching a part of that loop is a
global offset.  Any other kernel is one work item.  Run-time extents are `long` arguments behind
the buffers.

Kernels are legalised first: OpenCL C 1.2 has vectors of 2, 4, 8 and 16 lanes, all of which are
loaded and stored, and of operations neither bf16 nor, where an extension lacks, f16; both are
`ushort` here.  Results are those of the evaluator if programs are built with
-cl-fp32-correctly-rounded-divide-sqrt.
"""

from __future__ import annotations

from dataclasses import replace

from alpenglow.ir.types import DTYPES, HALVES
from alpenglow.kernel.across import Across
from alpenglow.kernel.expr import Buffer, Const, Expr, Load, Splat
from alpenglow.kernel.legalise import INSTRUCTIONS, Lacks, legalise
from alpenglow.kernel.rewrite import expressions
from alpenglow.kernel.stmt import Atomic, For, Kernel, Scope, Store
from alpenglow.render.clike.registers import Path, without_dead
from alpenglow.render.clike.spelling import bare, identifier
from alpenglow.render.clike.statements import Statements
from alpenglow.render.opencl.operations import DOTS, KernelLibrary, Native
from alpenglow.render.opencl.spelling import RESERVED, TYPES

LACKS = Lacks(
    lanes=16,
    element=8,
    masks=True,
    halves=HALVES,
    atomics=frozenset(DTYPES) - {"i32", "u32", "f32"},
    logic=True,
    wrapping=True,
    lookups=True,
    copies=True,
    tiles=True,
    subgroups=True,
    combined=True,
    instructions=INSTRUCTIONS,
)
"""What OpenCL C 1.2 has not, whatever the device."""

WITH_SUBGROUPS = replace(LACKS, subgroups=False)
"""What devices lack that have cl_khr_subgroups, cl_khr_subgroup_shuffle and
cl_intel_required_subgroup_size; a kernel says which size it wants of them."""

WITH_DOTS = replace(LACKS, instructions=INSTRUCTIONS - set(DOTS))
"""What devices lack that have cl_khr_integer_dot_product."""


def render(*kernels: Kernel, lacks: Lacks = LACKS) -> str:
    """Return the OpenCL C text of kernels, and before it the functions that they call.

    `lacks` says what the device has not.  Raises UnsupportedError if a kernel has a grid or atomic
    operations that OpenCL lacks.
    """
    library = KernelLibrary()
    items = [_Items(without_dead(legalise(k, lacks)), library) for k in kernels]
    texts = [item.text(f"__kernel {item.size()}void ") for item in items]
    return "\n".join([library.text(), *texts])


def render_placed(
    kernel: Kernel,
    aliased: frozenset[str] = frozenset(),
    fast: bool = False,
    lacks: Lacks = LACKS,
) -> str:
    """Return the text of a kernel whose operands begin anywhere in the memory that it is given.

    Behind the run-time extents there is the offset in bytes of each operand, a `long`.  Operands
    that are `aliased` lie where a result does.  If it is `fast`, a product that is added to
    something need not be rounded before.  `lacks` says what the device has not.
    """
    library = KernelLibrary(fast)
    item = _Placed(without_dead(legalise(kernel, lacks)), library, aliased)
    text = item.text(f"__kernel {item.size()}void ")
    return "\n".join([library.text(), text])


class _Items(Statements):
    """What one work item does."""

    index = "long"
    space = "__global "

    def __init__(
        self, kernel: Kernel, library: KernelLibrary, aliased: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(kernel, library, Native(library), aliased)
        launch = kernel.launch
        parallel = () if kernel.parallel is None else (kernel.parallel,)
        self.grid = {"group": launch.groups, "local": launch.threads, "global": parallel}
        for loops in self.grid.values():
            if len(loops) > 3:
                raise self.lacks(f"a grid of {len(loops)} dimensions")
        loads = (e.buffer for e in expressions(kernel) if isinstance(e, Load))
        written = any(b.mutable and b.space == "global" for b in loads)
        self.fence = "CLK_LOCAL_MEM_FENCE" + (" | CLK_GLOBAL_MEM_FENCE" if written else "")
        """What a barrier waits for: operands, too, if some are written and read."""

    def size(self) -> str:
        """Return the attributes that state the sizes of a group and its subgroups, if known."""
        _, extents = self.kernel.launch.sizes
        if not extents or not all(isinstance(n, Const) for n in extents):
            return ""
        sizes = [self.address(n) for n in extents] + ["1"] * (3 - len(extents))
        group = f"__attribute__((reqd_work_group_size({', '.join(sizes)}))) "
        size = self.kernel.subgroup
        return group + (f"__attribute__((intel_reqd_sub_group_size({size}))) " if size > 1 else "")

    def operations(self, e: Expr) -> Native:
        return Native(self.library, e.lanes)

    def identifier(self, name: str) -> str:
        return identifier(name, RESERVED)

    def memory(self, dtype: str) -> str:
        self.library.type(dtype)
        return "uchar" if dtype == "bool" else TYPES[dtype]

    def array(self, a: Buffer) -> str:
        space = "__local " if a.space == "shared" else ""
        align = f" __attribute__((aligned({a.align})))" if a.align else ""
        name = self.identifier(a.name)
        return f"{space}{self.memory(a.dtype)} {name}[{max(a.size, 1)}]{align}"

    def pointer(self, b: Buffer) -> str:
        """Return the type of the address of an operand."""
        const = ("" if b.mutable else "const ") + ("volatile " if b.volatile else "")
        return f"{self.space}{const}{self.memory(b.dtype)} *"

    # ── statements ──

    def loop(self, s: For, path: Path) -> None:
        for name, loops in self.grid.items():
            if s in loops:
                i = self.identifier(s.index.name)
                self.emit(f"const long {i} = get_{name}_id({loops.index(s)});")
                self.block(s.body, (*path, 0))
                return
        if s.kind in ("group", "thread"):
            raise self.lacks(f"a {s.kind} loop next to other statements")
        super().loop(s, path)

    def count(self, s: For, path: Path, first: str, last: str, step: str = "++") -> None:
        if s.kind == "unrolled":
            self.emit("__attribute__((opencl_unroll_hint))")
        super().count(s, path, first, last, step)

    def atomic(self, s: Atomic) -> None:
        assert s.value.lanes == 1, "an atomic operation is scalar"
        place, value = self.cell(s.buffer, s.at), bare(self.value(s.value))
        name = f"atomic_{s.op}"
        if s.buffer.dtype == "f32":
            name = self._exchanged(s.op, "__local" if s.buffer.space == "shared" else "__global")
        self.emit(f"{name}(&{place}, {value});")

    def _exchanged(self, op: str, space: str) -> str:
        """Define an atomic operation on f32, which OpenCL C has on integers alone.

        The result is put in place of what it was made of, unless another thread came before.
        """
        result = Native(self.library).binary(op, "f32", "as_float(before)", "value")
        return self.library.define(
            "void", f"atomic_{op}_f32{space.removeprefix('_')}",
            f"volatile {space} float *at, float value",
            f"volatile {space} uint *bits = (volatile {space} uint *)at;",
            "uint before, now = *bits;",
            "do {",
            "  before = now;",
            f"  now = atomic_cmpxchg(bits, before, as_uint({bare(result)}));",
            "} while (now != before);",
        )  # fmt: skip

    def barrier(self, scope: Scope) -> None:
        name = "barrier"
        if scope == "subgroup":
            name = self.operations(Const(0)).subgroup_barrier()
        self.emit(f"{name}({self.fence});")

    # ── threads of a subgroup ──

    def value(self, e: Expr) -> str:
        if not isinstance(e, Across):
            return super().value(e)
        assert e.at is not None, "what is combined has been exchanged in pairs"
        x, at, name = self.value(e.x), self.address(e.at), self.fresh()
        # It stands in a line of its own: all threads come there, whatever they select.
        moved = self.operations(e).across(e.op, e.dtype, bare(x), at)
        self.emit(f"const {self.library.type(e.dtype, e.lanes)} {name} = {moved};")
        return name

    # ── vectors ──

    def store_vector(self, s: Store) -> None:
        ops, dtype = self.operations(s.value), s.buffer.dtype
        if s.at.lanes > 1:
            values = self.named(s.value)
            for i, cell in enumerate(self.cells(s)):
                self.emit(self.put(dtype, cell, ops.shuffle(values, dtype, (i,))))
            return
        value = self.value(s.value)
        value = ops.convert(value, dtype, "u8") if dtype == "bool" else value
        self.emit(f"vstore{ops.lanes}({bare(value)}, 0, {self.place(s.buffer, s.at)});")

    def load_vector(self, e: Load) -> str:
        sign = "-" if e.dtype == "bool" else ""
        kind = self.library.type(e.dtype, e.lanes)
        if e.at.lanes > 1:
            elements = (sign + self.element(e.dtype, cell) for cell in self.cells(e))
            return f"({kind})({', '.join(elements)})"
        loaded = f"vload{e.lanes}(0, {self.place(e.buffer, e.at)})"
        return f"(-convert_{kind}({loaded}))" if sign else loaded

    def cells(self, e: Load | Store) -> list[str]:
        """Return the places of lanes, each at an address of its own."""
        name, where = self.identifier(e.buffer.name), self.named(e.at)
        return [f"{name}[{where}.s{i:x}]" for i in range(e.at.lanes)]

    def blend(self, x: Expr, y: Expr, order: tuple[int, ...]) -> str:
        kind, dtype = self.library.type(x.dtype, len(order)), x.dtype
        if order == tuple(range(2 * x.lanes)):
            return f"({kind})({bare(self.value(x))}, {bare(self.value(y))})"
        lanes: list[str] = []
        for v in (x, y):
            if isinstance(v, Splat):
                lanes += [self.value(v.x)] * x.lanes
            else:
                name, ops = self.named(v), self.operations(v)
                lanes += [ops.shuffle(name, dtype, (i,)) for i in range(x.lanes)]
        parts = (f"-{lanes[i]}" if dtype == "bool" else bare(lanes[i]) for i in order)
        return f"({kind})({', '.join(parts)})"

    def regrouped(self, x: Expr, e: Expr) -> str:
        return f"as_{self.library.type(e.dtype, e.lanes)}({bare(self.value(x))})"


class _Placed(_Items):
    """What one work item does with operands that are told as memory and an offset."""

    def parameters(self) -> list[str]:
        names = [self.identifier(b.name) for b in self.kernel.buffers]
        memory = (f"{self.space}uchar *{name}_in" for name in names)
        extents = (f"{self.index} {self.identifier(n.name)}" for n in self.kernel.extents)
        return [*memory, *extents, *(f"{self.index} {name}_at" for name in names)]

    def opening(self) -> list[str]:
        names = [(b, self.identifier(b.name)) for b in self.kernel.buffers]
        return [f"  {self.parameter(b)} = ({self.pointer(b)})({n}_in + {n}_at);"
                for b, n in names]  # fmt: skip
