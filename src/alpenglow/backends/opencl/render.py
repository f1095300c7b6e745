"""Kernel language to OpenCL C.

The grid of a kernel maps to work groups and work items, the innermost loop to dimension 0.  A
kernel with a parallel loop has one work item an iteration; launching a part of that loop is a
global offset.  Any other kernel is one work item.  Run-time extents are `long` arguments behind
the buffers.

OpenCL has vectors of 2, 4, 8 and 16 lanes, no masked loads and stores of vectors and no bf16;
these, and intrinsics, raise UnsupportedError.
"""

from __future__ import annotations

from collections.abc import Iterator

from alpenglow.backends.opencl.spelling import (
    EXTENSIONS,
    FLOAT_CALLS,
    LANES,
    SIGNS,
    TYPES,
    WRAPPING,
    extremum,
    literal,
    mask,
    stored,
    truncation,
    typename,
    unsigned,
)
from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.types import FLOATS
from alpenglow.kernel.expr import (
    Binary,
    Bitcast,
    Blend,
    Buffer,
    Compare,
    Const,
    Convert,
    Expr,
    Fma,
    Index,
    Intrinsic,
    Lanes,
    Load,
    Lookup,
    Reduce,
    Register,
    Select,
    Shuffle,
    Splat,
    Unary,
    signed,
)
from alpenglow.kernel.stmt import (
    Atomic,
    Barrier,
    For,
    If,
    Kernel,
    Prefetch,
    Set,
    Stmt,
    Store,
    While,
)


def render(kernel: Kernel) -> str:
    """Return the OpenCL C text of `kernel`; UnsupportedError names what OpenCL lacks."""
    return _Renderer(kernel).text()


class _Renderer:
    """Collects the lines of one kernel, and the helper functions that they call."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self.pad = "  "
        self.helpers: dict[str, str] = {}
        self.dtypes: set[str] = set()
        self.registers: dict[str, str] = {}
        self.temporaries = 0

    def text(self) -> str:
        k = self.kernel
        arguments = [self.argument(b) for b in k.buffers] + [f"long {e.name}" for e in k.extents]
        arrays = [self.array(a) for a in k.arrays]
        sizes = self.grid()
        registers = [f"  {kind} {name};" for name, kind in self.registers.items()]
        preamble = [*(EXTENSIONS[d] for d in sorted(self.dtypes & EXTENSIONS.keys()))]
        preamble += [*self.helpers.values()]
        preamble += [""] if preamble else []
        listed = ",\n  ".join(arguments)
        head = f"__kernel {sizes}void {k.name}(\n  {listed}\n) {{"
        return "\n".join([*preamble, head, *arrays, *registers, *self.lines, "}", ""])

    def argument(self, b: Buffer) -> str:
        const = ("" if b.mutable else "const ") + ("volatile " if b.volatile else "")
        alone = "" if b.volatile else "restrict "
        return f"__global {const}{self.type(b.dtype, memory=True)} *{alone}{b.name}"

    def array(self, a: Buffer) -> str:
        space = "__local " if a.space == "shared" else ""
        align = f" __attribute__((aligned({a.align})))" if a.align else ""
        return f"  {space}{self.type(a.dtype, memory=True)} {a.name}[{a.size}]{align};"

    def type(self, dtype: str, lanes: int = 1, memory: bool = False) -> str:
        if dtype not in TYPES:
            raise self.lacks(dtype)
        if lanes not in LANES:
            raise self.lacks(f"vectors of {lanes} lanes")
        self.dtypes.add(dtype)
        return stored(dtype, lanes) if memory else typename(dtype, lanes)

    def lacks(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"OpenCL C has no {what} (kernel {self.kernel.name})")

    # The grid.

    def grid(self) -> str:
        """Render the body; returns the attribute that states the size of a group."""
        body = self.kernel.body
        groups, body = _peel(body, "group")
        threads, body = _peel(body, "thread")
        for name, loops in (("group", groups), ("local", threads)):
            if len(loops) > 3:
                raise self.lacks(f"grid of {len(loops)} dimensions")
            for axis, loop in enumerate(reversed(loops)):
                self.emit(f"const long {loop.index.name} = get_{name}_id({axis});")
        self.block(body)
        match [loop.extent for loop in reversed(threads)]:
            case []:
                return ""
            case [*extents] if all(isinstance(n, Const) for n in extents):
                sizes = [self.index(n) for n in extents] + ["1"] * (3 - len(extents))
                return f"__attribute__((reqd_work_group_size({', '.join(sizes)})))\n"
        return ""

    # Statements.

    def emit(self, line: str) -> None:
        self.lines.append(self.pad + line)

    def block(self, body: tuple[Stmt, ...]) -> None:
        for s in body:
            self.statement(s)

    def inner(self, body: tuple[Stmt, ...], condition: Expr | None = None) -> None:
        """Render what stands in braces, left where `condition` fails."""
        self.pad += "  "
        if condition is not None:
            self.emit(f"if (!{self.condition(condition)}) break;")
        self.block(body)
        self.pad = self.pad[2:]

    def statement(self, s: Stmt) -> None:
        match s:
            case Set(register, value):
                self.registers[register.name] = self.type(register.dtype, register.lanes)
                self.emit(f"{register.name} = {self.value(value)};")
            case Store():
                self.store(s)
            case Atomic():
                self.atomic(s)
            case Prefetch():
                pass  # Other threads run while one waits for memory.
            case Barrier():
                self.emit("barrier(CLK_LOCAL_MEM_FENCE);")
            case For():
                self.loop(s)
            case If(condition, then, orelse):
                self.emit(f"if {self.condition(condition)} {{")
                self.inner(then)
                if orelse:
                    self.emit("} else {")
                    self.inner(orelse)
                self.emit("}")
            case While(condition, body):
                self.emit("for (;;) {")
                self.inner(body, condition)
                self.emit("}")

    def loop(self, s: For) -> None:
        i = s.index.name
        if s.kind in ("group", "thread"):
            raise self.lacks(f"{s.kind} loop beside other statements")
        if s is self.kernel.parallel:
            self.emit(f"const long {i} = get_global_id(0);")
            self.block(s.body)
            return
        n = self.index(s.extent) if _constant(s.extent) else self.name(s.extent)
        if s.kind == "unrolled":
            self.emit("__attribute__((opencl_unroll_hint))")
        self.emit(f"for (long {i} = 0; {i} < {n}; {i}++) {{")
        self.inner(s.body)
        self.emit("}")

    def store(self, s: Store) -> None:
        lanes, at = s.value.lanes, s.at
        if s.mask is not None and lanes > 1:
            raise self.lacks("masked stores of vectors")
        value = self.value(s.value)
        if s.value.dtype == "bool" and lanes > 1:
            value = f"convert_uchar{lanes}({value} & 1)"
        if at.lanes > 1:
            where, values = self.name(at), self.name(s.value, value, memory=True)
            for lane in _lanes(lanes):
                self.emit(f"{s.buffer.name}[{where}.{lane}] = {values}.{lane};")
        elif lanes > 1:
            self.emit(f"vstore{lanes}({value}, 0, {s.buffer.name} + {self.index(at)});")
        else:
            guard = "" if s.mask is None else f"if {self.condition(s.mask)} "
            self.emit(f"{guard}{s.buffer.name}[{self.index(at)}] = {value};")

    def atomic(self, s: Atomic) -> None:
        if s.buffer.dtype not in ("i32", "u32") or s.value.lanes > 1:
            raise self.lacks(f"atomic {s.op} of {s.value.lanes} {s.buffer.dtype}")
        place = f"&{s.buffer.name}[{self.index(s.at)}]"
        self.emit(f"atomic_{s.op}({place}, {self.value(s.value)});")

    # Expressions.

    def name(self, e: Expr, text: str = "", memory: bool = False) -> str:
        """Return a name for the value of `e`, which `text` says if it is given."""
        if isinstance(e, Register | Index) and not text:
            return e.name
        value = text or self.value(e)
        name = f"t{self.temporaries}"
        self.temporaries += 1
        self.emit(f"const {self.type(e.dtype, e.lanes, memory)} {name} = {value};")
        return name

    def index(self, e: Expr, least: int = 1) -> str:
        """Return an address or extent, in parentheses if it binds less tightly than `least`.

        Addresses are plain i64 arithmetic, which stays in range.
        """
        match e:
            case Const(value=value, lanes=1):
                return str(int(value))
            case Binary("add" | "sub" as op, x, y) if e.lanes == 1:
                text = f"{self.index(x, 1)} {SIGNS[op]} {self.index(y, 2)}"
                return text if least == 1 else f"({text})"
            case Binary("mul" | "div" | "rem" as op, x, y) if e.lanes == 1:
                text = f"{self.index(x, 2)}{SIGNS[op]}{self.index(y, 3)}"
                return text if least <= 2 else f"({text})"
        return self.value(e)

    def value(self, e: Expr) -> str:
        kind = self.type(e.dtype, e.lanes)
        match e:
            case Const():
                return literal(e)
            case Index(name) | Register(name):
                return name
            case Lanes(lanes):
                return f"({kind})({', '.join(map(str, range(lanes)))})"
            case Splat(x, lanes):
                sign = "-" if e.dtype == "bool" else ""
                return f"({kind})({sign}{self.value(x)})" if lanes > 1 else self.value(x)
            case Load():
                return self.load(e)
            case Unary(op, x):
                return self.unary(op, x)
            case Binary(op, x, y):
                return self.binary(op, e, self.value(x), self.value(y))
            case Compare(op, x, y):
                return self.compare(op, x, y)
            case Fma(x, y, z) if e.dtype in FLOATS:
                return f"fma({self.value(x)}, {self.value(y)}, {self.value(z)})"
            case Fma(x, y, z):
                return self.value(Binary("add", Binary("mul", x, y), z))
            case Select():
                return self.select(e)
            case Convert(x):
                return self.convert(x, self.value(x), e.dtype)
            case Bitcast(x) if x.lanes != e.lanes:
                raise self.lacks("lanes of another width")
            case Bitcast(x):
                if "bool" in (x.dtype, e.dtype):
                    return self.convert(x, self.value(x), e.dtype)
                return f"as_{kind}({self.value(x)})"
            case Reduce(op, x):
                return self.reduce(op, x)
            case Shuffle(x, order):
                return self.shuffle(x, order)
            case Blend(x, y, order):
                lanes, digits = x.lanes, "0123456789abcdef"
                parts = [f"{self.name(x if i < lanes else y)}.s{digits[i % lanes]}" for i in order]
                return f"({kind})({', '.join(parts)})"
            case Lookup():
                raise self.lacks("tables in registers")
            case Intrinsic(name):
                raise self.lacks(f"intrinsic {name}")
        raise AssertionError(f"no text for {type(e).__name__}")

    def condition(self, e: Expr) -> str:
        """Return a scalar bool in parentheses."""
        return self.value(e) if isinstance(e, Compare) else f"({self.value(e)})"

    def load(self, e: Load) -> str:
        name, lanes = e.buffer.name, e.lanes
        if lanes == 1:
            element = f"{name}[{self.index(e.at)}]"
            element = f"({element} != 0)" if e.dtype == "bool" else element
            zero = literal(Const(0, e.dtype))
            if e.mask is None:
                return element
            return self.narrowed(f"({self.value(e.mask)} ? {element} : {zero})", e)
        if e.mask is not None:
            raise self.lacks("masked loads of vectors")
        if e.at.lanes > 1:
            at = self.name(e.at)
            elements = ", ".join(f"{name}[{at}.{lane}]" for lane in _lanes(lanes))
            loaded = f"({self.type(e.dtype, lanes, memory=True)})({elements})"
        else:
            loaded = f"vload{lanes}(0, {name} + {self.index(e.at)})"
        return f"-convert_int{lanes}({loaded})" if e.dtype == "bool" else loaded

    def unary(self, op: str, x: Expr) -> str:
        value, kind = self.value(x), self.type(x.dtype, x.lanes)
        if x.dtype in FLOATS:
            return f"(-{value})" if op == "neg" else f"{FLOAT_CALLS.get(op, op)}({value})"
        match op:
            case "not" if x.dtype == "bool" and x.lanes == 1:
                return f"(!{value})"
            case "not":
                return self.narrowed(f"(~{value})", x)
            case "neg":
                return self.binary("sub", x, literal(Const(0, x.dtype, x.lanes)), value)
            case "abs" if signed(x.dtype):
                return f"as_{kind}(abs({value}))"
            case "abs" | "floor" | "ceil" | "round" | "trunc":
                return value
        raise self.lacks(f"{op} of {x.dtype}")

    def narrowed(self, text: str, e: Expr) -> str:
        """Undo C's promotion of narrow scalars to int."""
        promoted = e.lanes == 1 and e.dtype in ("i8", "i16", "u8", "u16")
        return f"({self.type(e.dtype)}){text}" if promoted else text

    def call(self, helper: tuple[str, str], *args: str) -> str:
        """Call the function of which `helper` has name and text."""
        name, self.helpers[helper[0]] = helper
        return f"{name}({', '.join(args)})"

    def binary(self, op: str, e: Expr, a: str, b: str) -> str:
        """Return ``a op b``; `e` has its type."""
        dtype, lanes = e.dtype, e.lanes
        if op in ("min", "max") and dtype in FLOATS:
            return self.call(extremum(op, dtype, lanes), a, b)
        if op == "pow" and dtype in FLOATS:
            return f"pow({a}, {b})"
        if op == "rem" and dtype in FLOATS:
            return f"fmod({a}, {b})"
        if op == "pow" or (dtype == "bool" and op not in ("and", "or", "xor")):
            raise self.lacks(f"{op} of {dtype}")
        if op in ("min", "max"):
            return f"{op}({a}, {b})"
        if op in WRAPPING and dtype in ("i32", "i64"):
            kind, wide = self.type(dtype, lanes), self.type(unsigned(dtype), lanes)
            return f"as_{kind}(as_{wide}({a}) {SIGNS[op]} as_{wide}({b}))"
        return self.narrowed(f"({a} {SIGNS[op]} {b})", e)

    def compare(self, op: str, x: Expr, y: Expr) -> str:
        if x.dtype == "bool" and op not in ("eq", "ne"):
            raise self.lacks(f"{op} of bool")
        text = f"({self.value(x)} {SIGNS[op]} {self.value(y)})"
        if x.lanes == 1 or x.dtype == "bool" or mask(x.dtype, x.lanes) == f"int{x.lanes}":
            return text
        return f"convert_int{x.lanes}{text}"

    def select(self, e: Select) -> str:
        condition, x, y = self.value(e.condition), self.value(e.x), self.value(e.y)
        if e.lanes == 1:
            return self.narrowed(f"({condition} ? {x} : {y})", e)
        wanted = f"int{e.lanes}" if e.dtype == "bool" else mask(e.dtype, e.lanes)
        condition = condition if wanted.startswith("int") else f"convert_{wanted}({condition})"
        return f"select({y}, {x}, {condition})"

    def convert(self, x: Expr, value: str, dtype: str) -> str:
        source, lanes = x.dtype, x.lanes
        kind = self.type(dtype, lanes)
        if source == dtype:
            return value
        if dtype == "bool":
            return self.compare("ne", x, Const(0, source, lanes))
        if source == "bool":
            return f"convert_{kind}({value} & 1)" if lanes > 1 else f"({kind}){value}"
        if source in FLOATS and dtype not in FLOATS:
            if dtype == "u64":
                raise self.lacks("conversion of floats to u64 that wraps")
            through = "i64" if dtype in ("i64", "u32") else "i32"
            short = source == "f16"
            value = f"convert_{self.type('f32', lanes)}({value})" if short else value
            source = "f32" if short else source
            value = self.call(truncation(source, through, lanes), value)
            return value if dtype == through else f"convert_{kind}({value})"
        if "f16" in (source, dtype) and "f32" not in (source, dtype):
            value = f"convert_{self.type('f32', lanes)}({value})"
        return f"convert_{kind}({value})"

    def reduce(self, op: str, x: Expr) -> str:
        """Combine the halves until one lane is left."""
        if x.lanes == 1:
            return self.value(x)
        if x.dtype == "bool":
            return f"(any({self.value(x)}) != 0)"
        name, lanes = self.name(x), x.lanes
        while lanes > 1:
            lanes //= 2
            part = Register(name, x.dtype, lanes)
            value = self.binary(op, part, f"{name}.lo", f"{name}.hi")
            name = self.name(part, value)
        return name

    def shuffle(self, x: Expr, order: tuple[int, ...]) -> str:
        kind, lanes = self.type(x.dtype, len(order)), "0123456789abcdef"
        if x.lanes == 1:
            return f"({kind})({self.value(x)})"
        if x.dtype == "bool" and len(order) == 1:
            return f"({self.name(x)}.s{lanes[order[0]]} != 0)"
        return f"{self.name(x)}.s{''.join(lanes[i] for i in order)}"


def _peel(body: tuple[Stmt, ...], kind: str) -> tuple[list[For], tuple[Stmt, ...]]:
    """Split perfectly nested loops of `kind` off; returns them, outermost first, and the rest."""
    match body:
        case (For() as loop,) if loop.kind == kind:
            inner, rest = _peel(loop.body, kind)
            return [loop, *inner], rest
    return [], body


def _constant(extent: Expr) -> bool:
    """Whether the body of a loop cannot change `extent`."""
    match extent:
        case Const() | Index():
            return True
        case Binary(_, x, y):
            return _constant(x) and _constant(y)
    return False


def _lanes(lanes: int) -> Iterator[str]:
    return (f"s{i:x}" for i in range(lanes))
