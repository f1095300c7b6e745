"""Statements of a kernel, and its scalar expressions, as lines of C.

What vectors are is left to the classes that build on this one: `wide` has types for them, `lanes`
loops.
"""

from __future__ import annotations

from alpenglow.backends.c.library import Library
from alpenglow.backends.c.registers import Path, is_index, study
from alpenglow.backends.c.scalars import Scalars
from alpenglow.backends.c.spelling import INDEX, SIGNS, identifier, memory
from alpenglow.backends.c.vectors import bare
from alpenglow.base.errors import UnsupportedError
from alpenglow.kernel.expr import (
    Binary,
    Bitcast,
    Buffer,
    Compare,
    Const,
    Convert,
    Expr,
    Fma,
    Index,
    Intrinsic,
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
    Set,
    Stmt,
    Store,
    While,
)

_PLAIN = ("add", "sub", "mul")


class Statements:
    """Collects the lines of one kernel."""

    def __init__(
        self, kernel: Kernel, library: Library, fast: bool, aliased: frozenset[str]
    ) -> None:
        self.kernel = kernel
        self.library = library
        self.fast = fast
        self.aliased = aliased
        self.scalars = Scalars(library)
        self.registers = study(kernel)
        self.lines: list[str] = []
        self.pad = "  "
        self.temporaries = 0

    def text(self, exported: bool) -> str:
        k = self.kernel
        self.block(k.body, ())
        text = "\n".join(self.lines)
        arrays = [self.array(a) for a in k.arrays if mentions(text, identifier(a.name))]
        parameters = [self.parameter(b) for b in k.buffers]
        parameters += [f"{INDEX} {identifier(n.name)}" for n in k.extents]
        if k.parallel is not None:
            parameters += [f"{INDEX} begin", f"{INDEX} end"]
        head = "void " if exported else "KERNEL void "
        listed = ", ".join(parameters) or "void"
        if len(head) + len(k.name) + len(listed) > 94:
            listed = "\n    " + ",\n    ".join(parameters)
        return "\n".join(
            [f"{head}{k.name}({listed}) {{", *self.unused(text), *arrays, *self.lines, "}", ""]
        )

    def parameter(self, b: Buffer) -> str:
        const = ("" if b.mutable else "const ") + ("volatile " if b.volatile else "")
        alone = not b.volatile and b.name not in self.aliased and not (self.aliased and b.mutable)
        restrict = "restrict " if alone else ""
        self.library.type(b.dtype)
        return f"{const}{memory(b.dtype)} *{restrict}{identifier(b.name)}"

    def unused(self, text: str) -> list[str]:
        """Return lines that say of parameters that `text` does not use them."""
        k = self.kernel
        names = [
            identifier(n) for n in (*(b.name for b in k.buffers), *(e.name for e in k.extents))
        ]
        return [f"  (void){n};" for n in names if not mentions(text, n)]

    def array(self, a: Buffer) -> str:
        if a.space != "local":
            raise self.lacks(f"{a.space} arrays")
        self.library.type(a.dtype)
        align = f"_Alignas({a.align}) " if a.align else ""
        return f"  {align}{memory(a.dtype)} {identifier(a.name)}[{max(a.size, 1)}];"

    def lacks(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"C has no {what} (kernel {self.kernel.name})")

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
            case Prefetch():
                pass  # Small processors, for which C is written, have no slow memory to wait for.
            case Barrier():
                raise self.lacks("barrier")

    def declare(self, register: Register) -> None:
        kind = self.kind(register)
        self.emit(f"{kind} {self.name(register)} = {'{0}' if kind == 'c128' else '0'};")

    def set(self, s: Set, declares: bool) -> None:
        value = bare(self.assigned(s))
        const = "const " if declares and s.register.name in self.registers.constant else ""
        kind = f"{const}{self.kind(s.register)} " if declares else ""
        self.emit(f"{kind}{self.name(s.register)} = {value};")

    def assigned(self, s: Set) -> str:
        """Return the value that a register gets."""
        match s.value:
            case Fma(x, y, Register(name)) if name == s.register.name and self.fast:
                # A sum of products: nothing depends on how one of them is rounded.
                a, b, c = (self.value(e) for e in (x, y, s.value.z))
                return self.operations(s.value).fma(s.value.dtype, a, b, c, loose=True)
        return self.value(s.value)

    def loop(self, s: For, path: Path) -> None:
        if s.kind in ("group", "thread"):
            raise self.lacks(f"{s.kind}s")
        i = identifier(s.index.name)
        first, last = "0", ""
        if s.strips > 1:
            self.strips(s, i, path)
            return
        if s is self.kernel.body[-1] and s.kind == "parallel":
            first, last = "begin", "end"
        elif isinstance(s.extent, Const | Index):
            last = bare(self.value(s.extent))
        else:
            last = self.named(s.extent)
        self.emit(f"for ({INDEX} {i} = {first}; {i} < {last}; {i}++) {{")
        self.inner(s.body, (*path, 0))
        self.emit("}")

    def strips(self, s: For, i: str, path: Path) -> None:
        """Run the part of a parallel loop in strips."""
        strip, n = self.fresh(), s.strips
        self.emit(f"for ({INDEX} {strip} = 0; {strip} < {n}; {strip}++) {{")
        first = f"(begin + {n - 1} - {strip}) / {n} * {n} + {strip}"
        self.emit(f"for ({INDEX} {i} = {first}; {i} < end; {i} += {n}) {{")
        self.inner(s.body, (*path, 0))
        self.emit("}")
        self.emit("}")

    def named(self, e: Expr) -> str:
        """Return a name for the value that a scalar has here."""
        name = self.fresh()
        kind = INDEX if is_index(e, self.registers.indices) else self.library.type(e.dtype)
        self.emit(f"const {kind} {name} = {bare(self.value(e))};")
        return name

    def store(self, s: Store) -> None:
        """Store a scalar."""
        guard = "" if s.mask is None else f"if ({bare(self.value(s.mask))}) "
        self.emit(guard + self.put(s.buffer.dtype, self.cell(s.buffer, s.at), self.value(s.value)))

    def put(self, dtype: str, cell: str, value: str) -> str:
        """Return the statement that stores a scalar in a place."""
        if dtype == "c64":
            return f"{self.library.call('store_c64', f'&{cell}', bare(value))};"
        return f"{cell} = {bare(value)};"

    def atomic(self, s: Atomic) -> None:
        if s.value.lanes > 1 or s.buffer.dtype == "bool":
            raise self.lacks(f"atomic {s.op} of {s.value.lanes} {s.buffer.dtype}")
        if self.kernel.parallel is not None:
            raise self.lacks("atomic operations that several threads share")
        cell = self.cell(s.buffer, s.at)
        changed = self.scalars.binary(s.op, s.buffer.dtype, cell, self.value(s.value))
        self.emit(f"{cell} = {bare(changed)};")

    # ── expressions ──

    def operations(self, e: Expr) -> Scalars:
        """Return what writes operations on values such as `e`."""
        return self.scalars

    def name(self, register: Register) -> str:
        return identifier(self.registers.names.get(register.name, register.name))

    def kind(self, register: Register) -> str:
        """Return the type of the variable that holds a register."""
        if register.name in self.registers.indices:
            return INDEX
        return self.library.type(register.dtype)

    def cell(self, buffer: Buffer, at: Expr) -> str:
        return f"{identifier(buffer.name)}[{bare(self.address(at))}]"

    def address(self, e: Expr, least: int = 1) -> str:
        """Return an address, in parentheses if it binds less tightly than `least`."""
        match e:
            case Const(value=value, lanes=1) if value >= 0:
                return str(int(value))
            case Binary("add" | "sub" as op, x, y) if e.lanes == 1:
                text = f"{self.address(x, 1)} {SIGNS[op]} {self.address(y, 2)}"
                return text if least == 1 else f"({text})"
            case Binary("mul" | "div" | "rem" as op, x, y) if e.lanes == 1:
                text = f"{self.address(x, 2)} {SIGNS[op]} {self.address(y, 3)}"
                return text if least <= 2 else f"({text})"
        return self.value(e)

    def value(self, e: Expr) -> str:
        """Return an expression that binds tightly."""
        ops = self.operations(e)
        match e:
            case Binary() if e.lanes == 1 and is_index(e, self.registers.indices):
                return f"({self.address(e)})"
            case Binary(op, x, y) if op in _PLAIN and is_index(e, self.registers.indices):
                return f"({self.value(x)} {SIGNS[op]} {self.value(y)})"
            case Const():
                return self.constant(e)
            case Index(name):
                return identifier(name)
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
                return ops.intrinsic(name, *(self.value(a) for a in args))
            case Load():
                return self.load(e)
            case Splat(x) | Reduce(x=x) | Shuffle(x=x) if x.lanes == e.lanes == 1:
                return self.value(x)
        return self.wide(e)

    def constant(self, e: Const) -> str:
        return self.operations(e).constant(e)

    def register(self, e: Register) -> str:
        return self.name(e)

    def load(self, e: Load) -> str:
        """Return a scalar from memory, 0 where its mask is false."""
        element = self.element(e.dtype, self.cell(e.buffer, e.at))
        if e.mask is None:
            return element
        zero = self.scalars.constant(Const(0, e.dtype))
        return self.scalars.select(e.dtype, self.value(e.mask), element, zero)

    def element(self, dtype: str, cell: str) -> str:
        if dtype == "c64":
            return self.library.call("load_c64", f"&{cell}")
        return f"({cell} != 0)" if dtype == "bool" else cell

    def regrouped(self, x: Expr, e: Expr) -> str:
        """Return the bits of x in fewer or more lanes: those of `e`."""
        raise AssertionError(f"no text for {x.dtype}x{x.lanes} as {e.dtype}x{e.lanes}")

    def wide(self, e: Expr) -> str:
        """Return an expression that has to do with vectors."""
        raise AssertionError(f"no text for {type(e).__name__}")


def mentions(text: str, name: str) -> bool:
    """Whether `name` stands in C text as a word."""
    at = text.find(name)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(name) : at + len(name) + 1]
        if not (before.isalnum() or before == "_" or after.isalnum() or after == "_"):
            return True
        at = text.find(name, at + 1)
    return False
