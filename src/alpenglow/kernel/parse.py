"""Reading the text of kernels: a parser by recursive descent, a line at a time.

`kernel.text` shows the form, `docs/kernel.md` lists it.  The tables here say what both the
parser and the printer must know.
"""

from __future__ import annotations

from alpenglow.ir.text import unquote
from alpenglow.ir.types import DTYPES, FLOATS, NARROW_FLOATS
from alpenglow.kernel.across import COMBINES, MOVES, Across
from alpenglow.kernel.expr import (
    BINARY,
    REDUCE,
    UNARY,
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
    Space,
    Splat,
    Unary,
)
from alpenglow.kernel.fragments import Mma, Tile
from alpenglow.kernel.intrinsics import INTRINSICS
from alpenglow.kernel.stmt import (
    Atomic,
    Barrier,
    Commit,
    Copy,
    For,
    If,
    Kernel,
    Kind,
    Prefetch,
    Set,
    Stmt,
    Store,
    StoreTile,
    Wait,
    While,
)
from alpenglow.kernel.tokens import COLUMNS, KINDS, Lines
from alpenglow.kernel.verify import verify_kernel

INFIX = {
    "eq": ("==", 1), "ne": ("!=", 1), "lt": ("<", 1), "le": ("<=", 1), "gt": (">", 1),
    "ge": (">=", 1), "or": ("|", 2), "xor": ("^", 3), "and": ("&", 4), "shl": ("<<", 5),
    "shr": (">>", 5), "add": ("+", 6), "sub": ("-", 6), "mul": ("*", 7), "div": ("/", 7),
    "rem": ("%", 7),
}  # fmt: skip
"""The sign of an operation and how tightly it binds.  Comparisons do not chain."""

_ACROSS = (*MOVES, *COMBINES)
_ASSIGNS = ("[", ":", "=")
"""What stands behind a name that is assigned to; behind a word of the language it does not."""

_SIGNS = {sign: op for op, (sign, _) in INFIX.items()}
_CALLS = {*UNARY, *(op for op in BINARY if op not in INFIX),
          "fma", "mma", "select", "shuffle", "blend", "lookup"}  # fmt: skip


def parse_kernel(text: str) -> Kernel:
    """Read a kernel.

    Raises ParseError with the line where the text breaks the grammar, and KernelError where the
    kernel breaks another rule (`kernel.verify`).
    """
    kernel = _Parser(text).kernel()
    verify_kernel(kernel)
    return kernel


class _Parser(Lines):
    """Reads statements and expressions; knows the names that have been defined."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.buffers: dict[str, Buffer] = {}
        self.names: dict[str, Index | Register] = {}

    def kernel(self) -> Kernel:
        self.next_line()
        self.expect("kernel")
        self.expect("@")
        name = self.name()
        self.expect("(")
        buffers = [] if self.take(")") else [self.operand(), *self.rest(self.operand)]
        extents: list[Index] = []
        if self.take("extents"):
            self.expect("(")
            extents = [self.extent(), *self.rest(self.extent)]
        subgroup = self.integer() if self.take("subgroup") else 1
        self.open()
        arrays: list[Buffer] = []
        while self.tokens[0] == "array":
            arrays.append(self.array())
        body = self.block()
        self.end_line(last=True)
        return Kernel(name, tuple(buffers), tuple(extents), tuple(arrays), body, subgroup)

    def operand(self) -> Buffer:
        name = self.name()
        self.expect(":")
        volatile, mutable = self.take("volatile"), self.take("mut")
        dtype, align = self.dtype(), self.align()
        return self.declare(Buffer(name, dtype, mutable, "global", align, volatile=volatile))

    def extent(self) -> Index:
        index = Index(self.name())
        self.names[index.name] = index
        return index

    def array(self) -> Buffer:
        self.expect("array")
        name = self.name()
        self.expect(":")
        dtype = self.dtype()
        self.expect("[")
        size = self.integer()
        self.expect("]")
        space: Space = "shared" if self.take("shared") else "local"
        if space == "local":
            self.expect("local")
        array = self.declare(Buffer(name, dtype, True, space, self.align(), size))
        self.end_line()
        return array

    def declare(self, b: Buffer) -> Buffer:
        if b.name in self.buffers:
            raise self.error(f"buffer '{b.name}' is already declared")
        self.buffers[b.name] = b
        return b

    # Statements.  Each begins with its first token and leaves the next line's at hand.

    def block(self) -> tuple[Stmt, ...]:
        """Read statements up to the closing brace and take that."""
        body: list[Stmt] = []
        while not self.take("}"):
            try:
                body.append(self.statement())
            except AssertionError as mistake:  # the constructors check the types
                raise self.error(str(mistake)) from mistake
        return tuple(body)

    def statement(self) -> Stmt:
        word = self.peek()
        if word in KINDS:
            return self.loop(KINDS[self.next()])
        if self.take("if"):
            condition = self.condition()
            then = self.block()
            orelse: tuple[Stmt, ...] = ()
            if self.take("else"):
                self.open()
                orelse = self.block()
            self.end_line()
            return If(condition, then, orelse)
        if self.take("while"):
            loop = While(self.condition(), self.block())
            self.end_line()
            return loop
        s = self.line_statement()
        self.end_line()
        return s

    def line_statement(self) -> Stmt:
        if self.take("barrier"):
            return Barrier("subgroup" if self.take("subgroup") else "group")
        if self.peek() in ("copy", "commit", "wait") and self.ahead() not in _ASSIGNS:
            return self.copying(self.next())
        if self.take("prefetch"):
            later = self.peek() == "." and self.choice(("later",)) == "later"
            buffer, (at, _) = self.buffer(self.name()), self.place()
            return Prefetch(buffer, at, later)
        if self.take("atomic"):
            op = self.choice(("add", "min", "max"))
            buffer, (at, _) = self.buffer(self.name()), self.place()
            self.expect("=")
            return Atomic(op, buffer, at, self.expr())
        name = self.name()
        if self.peek() == "[":
            return self.store(self.buffer(name))
        if self.take(":"):
            register = Register(name, *self.value_type())
        else:
            known = self.names.get(name)
            if not isinstance(known, Register):
                raise self.error(f"expected a type for register '{name}' at its first assignment")
            register = known
        self.expect("=")
        assignment = Set(register, self.expr())
        self.names[name] = register
        return assignment

    def store(self, buffer: Buffer) -> Stmt:
        self.expect("[")
        at = self.expr()
        stride = self.expr() if self.take(",") else None
        mask = self.expr() if stride is None and self.take("if") else None
        self.expect("]")
        self.expect("=")
        value = self.expr()
        return (
            Store(buffer, at, value, mask)
            if stride is None
            else StoreTile(buffer, at, stride, value)
        )

    def copying(self, word: str) -> Copy | Commit | Wait:
        if word != "copy":
            return Commit() if word == "commit" else Wait(self.integer())
        to, (at, _) = self.buffer(self.name()), self.place()
        self.expect("=")
        source = self.expr()
        if not isinstance(source, Load):
            raise self.error("expected an element of a buffer to copy")
        return Copy(to, at, source.buffer, source.at, source.lanes, source.mask)

    def loop(self, kind: Kind) -> For:
        index = Index(self.name())
        self.expect("in")
        extent = self.expr()
        strips = self.integer() if kind == "parallel" and self.take("strips") else 1
        outer = self.names.get(index.name)
        self.names[index.name] = index
        self.open()
        loop = For(index, extent, self.block(), kind, strips)
        del self.names[index.name]
        if outer is not None:
            self.names[index.name] = outer
        self.end_line()
        return loop

    def condition(self) -> Expr:
        condition = self.expr()
        if (condition.dtype, condition.lanes) != ("bool", 1):
            raise self.error(f"condition is {condition.dtype}x{condition.lanes}, expected bool")
        self.open()
        return condition

    # Expressions.

    def expr(self, least: int = 1) -> Expr:
        """Read operands joined by signs that bind at least as tightly as `least`."""
        x = self.term()
        while (op := _SIGNS.get(self.peek())) is not None and INFIX[op][1] >= least:
            level = INFIX[op][1]
            self.next()
            y = self.expr(level + 1)
            if level > 1:
                x = Binary(op, x, y)
                continue
            x = Compare(op, x, y)
            break
        return x

    def term(self) -> Expr:
        word = self.next()
        if word == "(":
            return self.close(self.expr())
        if word == "-" or word[0].isdigit() or word in ("true", "false", "inf", "nan"):
            return self.constant("-" + self.next() if word == "-" else word)
        if word == "@":
            return self.intrinsic()
        if word == "lanes":
            return Lanes(self.width())
        if self.peek() == "(" and not word.startswith('"'):
            return self.call(word)
        if word == "across" and self.peek() == "." and self.ahead() in _ACROSS:
            return self.across()
        if self.peek() == "." and word in ("splat", "bits", "reduce"):
            return self.suffixed(word)
        name = unquote(word)
        if self.peek() in (".", "["):
            buffer = self.buffer(name)
            lanes, operand = 1, False
            if self.take("."):
                operand = self.take("operand")
                lanes = 1 if operand else self.integer()
                if COLUMNS.fullmatch(self.peek()):
                    return self.tile(buffer, lanes)
            at, mask = self.place()
            if operand and (mask is not None or at.lanes > 1):
                raise self.error("expected an operand of one element, without a mask")
            return Load(buffer, at, lanes, mask, operand)
        if name not in self.names:
            raise self.error(f"expected a name that is defined before its use, not '{name}'")
        return self.names[name]

    def tile(self, buffer: Buffer, rows: int) -> Tile:
        shape = rows, self.columns()
        self.expect("[")
        at = self.expr()
        self.expect(",")
        stride = self.expr()
        self.expect("]")
        return Tile(buffer, at, stride, shape)

    def call(self, word: str) -> Expr:
        if word not in DTYPES and word not in _CALLS:
            raise self.error(f"expected an operation, not '{word}'")
        self.expect("(")
        x = self.expr()
        if word in DTYPES:
            return self.close(Convert(x, word))
        if word in UNARY:
            return self.close(Unary(word, x))
        self.expect(",")
        if word == "shuffle":
            self.expect("[")
            order = [self.integer(), *self.rest(self.integer, "]")]
            return self.close(Shuffle(x, tuple(order)))
        if word == "lookup":
            self.expect("[")
            return self.close(Lookup((self.decimal(), *self.rest(self.decimal, "]")), x))
        y = self.expr()
        if word in BINARY:
            return self.close(Binary(word, x, y))
        self.expect(",")
        if word == "blend":
            self.expect("[")
            order = [self.integer(), *self.rest(self.integer, "]")]
            return self.close(Blend(x, y, tuple(order)))
        z = self.expr()
        if word == "mma":
            return self.close(Mma(x, y, z))
        return self.close(Fma(x, y, z) if word == "fma" else Select(x, y, z))

    def suffixed(self, word: str) -> Expr:
        """Read what follows ``splat``, ``bits`` or ``reduce``."""
        if word == "splat":
            lanes = self.width()
            self.expect("(")
            return self.close(Splat(self.expr(), lanes))
        choice = self.choice(DTYPES if word == "bits" else REDUCE)
        self.expect("(")
        x = self.expr()
        return self.close(Bitcast(x, choice) if word == "bits" else Reduce(choice, x))

    def across(self) -> Expr:
        op = self.choice(_ACROSS)
        self.expect("(")
        x = self.expr()
        at = self.expr() if self.take(",") else None
        return self.close(Across(op, x, at))

    def intrinsic(self) -> Expr:
        name = self.next()
        if name not in INTRINSICS:
            raise self.error(f"no intrinsic is called '{name}'; expected {', '.join(INTRINSICS)}")
        self.expect("(")
        return Intrinsic(name, (self.expr(), *self.rest(self.expr)))

    def constant(self, word: str) -> Const:
        dtype, lanes, shape = self.value_type() if self.take(":") else ("", 1, None)
        if word in ("true", "false"):
            return Const(word == "true", "bool", lanes, shape)
        try:
            if dtype in FLOATS | NARROW_FLOATS:
                return Const(float(word), dtype, lanes, shape)
            return Const(int(word), dtype or "i64", lanes, shape)
        except ValueError as mistake:
            text = f"expected {dtype or 'i64'}, not '{word}'; a float is 0.5:f32"
            raise self.error(text) from mistake

    def place(self) -> tuple[Expr, Expr | None]:
        """Read ``[ADDRESS]`` or ``[ADDRESS if MASK]``."""
        self.expect("[")
        at = self.expr()
        mask = self.expr() if self.take("if") else None
        self.expect("]")
        return at, mask

    def buffer(self, name: str) -> Buffer:
        if name not in self.buffers:
            raise self.error(f"expected a declared buffer, not '{name}'")
        return self.buffers[name]
