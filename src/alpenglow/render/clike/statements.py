"""Statements of a kernel, and its expressions, as lines of a language that descends from C.

Kernels are legalised first.  A dialect says how operands are declared, what loops are that are no
loops there, and how vectors go to and from memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from alpenglow.base.errors import UnsupportedError
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
)
from alpenglow.kernel.stmt import (
    Atomic,
    Barrier,
    For,
    If,
    Kernel,
    Prefetch,
    Scope,
    Set,
    Stmt,
    Store,
    While,
)
from alpenglow.render.clike.library import Library
from alpenglow.render.clike.operations import Operations, Vectors
from alpenglow.render.clike.registers import Path, is_index, study
from alpenglow.render.clike.spelling import SIGNS, address, bare, mentions

_PLAIN = ("add", "sub", "mul")


class Statements(ABC):
    """Collects the lines of one kernel.

    Read-only buffers that are `aliased` may be the same memory as a mutable one.
    """

    index: str
    """The type of indices."""
    space = ""
    """What stands before the type of an operand."""

    def __init__(
        self,
        kernel: Kernel,
        library: Library,
        scalars: Operations,
        aliased: frozenset[str] = frozenset(),
    ) -> None:
        self.kernel = kernel
        self.library = library
        self.scalars = scalars
        self.aliased = aliased
        self.registers = study(kernel)
        self.lines: list[str] = []
        self.pad = "  "
        self.temporaries = 0

    def text(self, head: str) -> str:
        """Return the function, which begins with `head`."""
        k = self.kernel
        self.block(k.body, ())
        text = "\n".join(self.lines)
        arrays = [
            f"  {self.array(a)};" for a in k.arrays if mentions(text, self.identifier(a.name))
        ]
        parameters = self.parameters()
        listed = ", ".join(parameters) or "void"
        if len(head) + len(k.name) + len(listed) > 94:
            listed = "\n    " + ",\n    ".join(parameters)
        names = [*(b.name for b in k.buffers), *(n.name for n in k.extents)]
        names = [self.identifier(name) for name in names]
        unused = [f"  (void){n};" for n in names if not mentions(text, n)]
        lines = [*self.opening(), *unused, *arrays, *self.lines]
        return "\n".join([f"{head}{k.name}({listed}) {{", *lines, "}", ""])

    def opening(self) -> list[str]:
        """Return what comes before anything else."""
        return []

    def parameters(self) -> list[str]:
        extents = [f"{self.index} {self.identifier(n.name)}" for n in self.kernel.extents]
        return [*map(self.parameter, self.kernel.buffers), *extents]

    def parameter(self, b: Buffer) -> str:
        const = ("" if b.mutable else "const ") + ("volatile " if b.volatile else "")
        alone = not b.volatile and b.name not in self.aliased and not (self.aliased and b.mutable)
        restrict = "restrict " if alone else ""
        return f"{self.space}{const}{self.memory(b.dtype)} *{restrict}{self.identifier(b.name)}"

    def lacks(self, what: str) -> UnsupportedError:
        return self.library.lacks(what, self.kernel.name)

    # ── what a dialect says ──

    @abstractmethod
    def identifier(self, name: str) -> str:
        """Return a name that the language accepts."""

    @abstractmethod
    def memory(self, dtype: str) -> str:
        """Return the type of an element in memory."""

    @abstractmethod
    def array(self, a: Buffer) -> str:
        """Return the declaration of an array of the kernel."""

    def operations(self, e: Expr) -> Operations:
        """Return what writes operations on values such as `e`, or on each of their lanes."""
        return self.scalars

    @abstractmethod
    def load_vector(self, e: Load) -> str: ...

    @abstractmethod
    def store_vector(self, s: Store) -> None: ...

    @abstractmethod
    def atomic(self, s: Atomic) -> None: ...

    @abstractmethod
    def barrier(self, scope: Scope) -> None: ...

    @abstractmethod
    def blend(self, x: Expr, y: Expr, order: tuple[int, ...]) -> str: ...

    @abstractmethod
    def regrouped(self, x: Expr, e: Expr) -> str:
        """Return the bits of x in fewer or more lanes: those of `e`."""

    # ── lines ──

    def emit(self, line: str) -> None:
        self.lines.append(self.pad + line)

    def fresh(self) -> str:
        self.temporaries += 1
        return f"u{self.temporaries}"

    def inner(self, body: tuple[Stmt, ...], path: Path, condition: Expr | None = None) -> None:
        """Write what stands in braces, left where `condition` fails."""
        self.pad += "  "
        if condition is not None:
            self.emit(f"if (!{self.value(condition)}) break;")
        self.block(body, path)
        self.pad = self.pad[2:]

    def block(self, body: tuple[Stmt, ...], path: Path) -> None:
        for register in self.registers.opening.get(path, []):
            self.declare(register)
        for i, s in enumerate(body):
            self.statement(s, (*path, i))

    # ── statements ──

    def statement(self, s: Stmt, path: Path) -> None:
        match s:
            case Set():
                self.set(s, path in self.registers.declaring)
            case Store():
                self.store(s)
            case For():
                self.loop(s, path)
            case If(condition, then, orelse):
                self.emit(f"if ({bare(self.value(condition))}) {{")
                self.inner(then, (*path, 0))
                if orelse:
                    self.emit("} else {")
                    self.inner(orelse, (*path, 1))
                self.emit("}")
            case While(condition, body):
                self.emit("for (;;) {")
                self.inner(body, (*path, 0), condition)
                self.emit("}")
            case Atomic():
                self.atomic(s)
            case Barrier(scope):
                self.barrier(scope)
            case Prefetch():
                pass  # On a GPU others run while one waits; small processors have no slow memory.
            case _:
                raise self.lacks(type(s).__name__.lower())

    def declare(self, register: Register) -> None:
        self.emit(f"{self.kind(register)} {self.name(register)} = 0;")

    def set(self, s: Set, declares: bool) -> None:
        value = bare(self.assigned(s))
        const = "const " if declares and s.register.name in self.registers.constant else ""
        kind = f"{const}{self.kind(s.register)} " if declares else ""
        self.emit(f"{kind}{self.name(s.register)} = {value};")

    def assigned(self, s: Set) -> str:
        """Return the value that a register gets."""
        return self.value(s.value)

    def loop(self, s: For, path: Path) -> None:
        plain = isinstance(s.extent, Const | Index)
        last = self.address(s.extent) if plain else self.named(s.extent)
        self.count(s, path, "0", last)

    def count(self, s: For, path: Path, first: str, last: str, step: str = "++") -> None:
        """Write the loop from `first` to `last`."""
        i = self.identifier(s.index.name)
        self.emit(f"for ({self.index} {i} = {first}; {i} < {last}; {i}{step}) {{")
        self.inner(s.body, (*path, 0))
        self.emit("}")

    def store(self, s: Store) -> None:
        if s.value.lanes > 1:
            self.store_vector(s)
        else:
            self.emit(self.stored(s))

    def stored(self, s: Store, value: str = "") -> str:
        """Return the statement that stores a scalar, or a lane."""
        guard = "" if s.mask is None else f"if ({bare(self.value(s.mask))}) "
        cell = self.cell(s.buffer, s.at, s.value.lanes)
        return guard + self.put(s.buffer.dtype, cell, value or self.value(s.value))

    def put(self, dtype: str, cell: str, value: str) -> str:
        """Return the statement that stores a scalar in a place."""
        return f"{cell} = {bare(value)};"

    # ── expressions ──

    def name(self, register: Register) -> str:
        return self.identifier(self.registers.names.get(register.name, register.name))

    def kind(self, e: Expr) -> str:
        """Return the type of the variable that holds a value."""
        if e.lanes == 1 and is_index(e, self.registers.indices):
            return self.index
        return self.library.type(e.dtype, e.lanes)

    def named(self, e: Expr) -> str:
        """Return a name for the value that `e` has here."""
        if isinstance(e, Register) and e.lanes > 1:
            return self.name(e)
        kind, name = self.kind(e), self.fresh()
        self.emit(f"const {kind} {name} = {bare(self.value(e))};")
        return name

    def cell(self, buffer: Buffer, at: Expr, lanes: int = 1) -> str:
        """Return the place of a scalar, or of a lane."""
        return f"{self.identifier(buffer.name)}[{bare(self.address(at))}]"

    def place(self, buffer: Buffer, at: Expr) -> str:
        """Return where a vector begins."""
        name, offset = self.identifier(buffer.name), self.address(at)
        return name if offset == "0" else f"{name} + {offset}"

    def address(self, e: Expr) -> str:
        return address(e, self.value)

    def value(self, e: Expr) -> str:
        """Return an expression that binds tightly."""
        ops = self.operations(e)
        match e:
            case Binary() if e.lanes == 1 and is_index(e, self.registers.indices):
                return f"({self.address(e)})"
            case Binary(op, x, y) if op in _PLAIN and is_index(e, self.registers.indices):
                return f"({self.value(x)} {SIGNS[op]} {self.value(y)})"
            case Const():
                return ops.constant(e)
            case Index(name):
                return self.identifier(name)
            case Register():
                return self.register(e)
            case Binary(op, x, y):
                return ops.binary(op, e.dtype, self.value(x), self.value(y))
            case Compare(op, x, y):
                return ops.compare(op, x.dtype, self.value(x), self.value(y))
            case Unary(op, x):
                return ops.unary(op, e.dtype, self.value(x))
            case Fma(x, y, z):
                return ops.fma(e.dtype, self.value(x), self.value(y), self.value(z))
            case Select(condition, x, y):
                return ops.select(e.dtype, self.value(condition), self.value(x), self.value(y))
            case Convert(x, dtype):
                return ops.convert(self.value(x), x.dtype, dtype)
            case Bitcast(x) if x.lanes != e.lanes:
                return self.regrouped(x, e)
            case Bitcast(x, dtype):
                return ops.bitcast(self.value(x), x.dtype, dtype)
            case Lookup(table, at):
                return ops.lookup(table, self.value(at))
            case Intrinsic(name, args):
                return ops.intrinsic(name, *map(self.value, args))
            case Load():
                return self.load(e) if e.lanes == 1 else self.load_vector(e)
            case Blend(x, y, order):
                return self.blend(x, y, order)
            case Splat(x) | Reduce(x=x) | Shuffle(x=x) if x.lanes == e.lanes == 1:
                return self.value(x)
        return self.wide(e)

    def register(self, e: Register) -> str:
        return self.name(e)

    def load(self, e: Load) -> str:
        """Return a scalar from memory, or a lane, 0 where its mask is false."""
        element = self.element(e.dtype, self.cell(e.buffer, e.at, e.lanes))
        if e.mask is None:
            return element
        zero = self.scalars.constant(Const(0, e.dtype))
        return self.scalars.select(e.dtype, self.value(e.mask), element, zero)

    def element(self, dtype: str, cell: str) -> str:
        return f"({cell} != 0)" if dtype == "bool" else cell

    def wide(self, e: Expr) -> str:
        """Return an expression that has to do with lanes."""
        match e:
            case Lanes():
                return self.vectors(e).iota()
            case Splat(x) | Shuffle(x) if x.lanes == 1:
                return self.vectors(e).splat(self.value(x), e.dtype)
            case Reduce(op, x):
                operand = bare(self.value(x))
                return f"{self.vectors(x).reduce(op, x.dtype)}({operand})"
            case Shuffle(x, order):
                return self.vectors(x).shuffle(self.named(x), x.dtype, order)
        raise self.lacks(type(e).__name__.lower())

    def vectors(self, e: Expr) -> Vectors:
        ops = self.operations(e)
        assert isinstance(ops, Vectors), f"a value of {e.lanes} lanes"
        return ops
