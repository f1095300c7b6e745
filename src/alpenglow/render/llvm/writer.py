"""LLVM instructions, one after the other, and the arithmetic that they do.

What the kernel language computes with operands (registers or constants of LLVM, as text) is spelled
here; where operands come from is the business of `render`.
"""

from __future__ import annotations

from alpenglow.ir.types import DTYPES, FLOATS, HALVES
from alpenglow.kernel.expr import Const, signed
from alpenglow.render.llvm.spelling import (
    BINARY,
    COMPARE,
    EXTREMES,
    SCALAR,
    constant,
    family,
    overload,
    vector,
)

WHOLE = frozenset({"floor", "ceil", "round", "trunc"})
"""Functions that round to whole numbers."""


class Writer:
    """Appends instructions to `lines`; each method returns the operand that holds its result.

    `known` holds results that may be used again: of instructions that always run before.
    With `fast`, LLVM may contract a product and a sum, but no sum or difference of two `products`:
    of equal products one would be rounded, and their difference would not be 0.  LLVM may not
    reassociate: a quotient by what follows it would overflow where the formula as written does not.
    Nor may it round to whole numbers in f16 what was `widened` to f32: few processors do so in
    vectors, and for others LLVM converts each element by itself.
    """

    def __init__(self, fast: bool) -> None:
        self.flags = " contract" if fast else ""
        self.lines: list[str] = []
        self.count = 0
        self.known: dict[str, str] = {}
        self.products: set[str] = set()
        self.widened: set[str] = set()

    def fresh(self) -> int:
        """Return a number that no value or label has."""
        self.count += 1
        return self.count

    def emit(self, text: str) -> str:
        """Add an instruction; returns the name of its value."""
        value = f"%v{self.fresh()}"
        self.lines.append(f"  {value} = {text}")
        return value

    def emit_once(self, text: str) -> str:
        """Add an instruction that depends on its operands alone, if there is none like it."""
        if text not in self.known:
            self.known[text] = self.emit(text)
        return self.known[text]

    # ── operations of the kernel language ──

    def binary(self, op: str, dtype: str, lanes: int, a: str, b: str, index: bool = False) -> str:
        kind = vector(SCALAR[dtype], lanes)
        if op in ("min", "max", "pow"):
            return self.call(EXTREMES[family(dtype)][op], dtype, lanes, a, b)
        mnemonic = BINARY[family(dtype)][op]
        if dtype in FLOATS:
            paired = op in ("add", "sub") and {a, b} <= self.products
            value = self.emit(f"{mnemonic}{'' if paired else self.flags} {kind} {a}, {b}")
            if op == "mul":
                self.products.add(value)
            return value
        if not index:
            return self.emit(f"{mnemonic} {kind} {a}, {b}")
        exact = " nsw" if op in ("add", "sub", "mul") else ""
        return self.emit_once(f"{mnemonic}{exact} {kind} {a}, {b}")

    def fma(self, dtype: str, lanes: int, a: str, b: str, c: str) -> str:
        """Return a * b + c, rounded once."""
        if dtype not in FLOATS:
            return self.binary("add", dtype, lanes, self.binary("mul", dtype, lanes, a, b), c)
        if dtype in HALVES:
            return self.short_fma(dtype, lanes, a, b, c)
        kind = vector(SCALAR[dtype], lanes)
        # No flags: an Fma is there because it is rounded once.
        name = f"@llvm.fma.{overload(dtype, lanes)}"
        return self.emit(f"call {kind} {name}({kind} {a}, {kind} {b}, {kind} {c})")

    def short_fma(self, dtype: str, lanes: int, *operands: str) -> str:
        """Return a * b + c of short floats: in f64, where the product is exact.

        The sum is rounded to odd there and again in f32, so that rounding it to `dtype` is the same
        as rounding the exact sum.
        """
        kind, single = vector("double", lanes), vector("float", lanes)
        exact = self.odd_fma(lanes, *(self.convert(x, dtype, "f64", lanes) for x in operands))
        near = self.emit(f"fptrunc {kind} {exact} to {single}")
        back = self.emit(f"fpext {single} {near} to {kind}")
        lost = self.emit(f"fsub {kind} {exact}, {back}")
        return self.convert(self.to_odd("f32", lanes, near, lost), "f32", dtype, lanes)

    def odd_fma(self, lanes: int, a: str, b: str, c: str) -> str:
        """Return a * b + c of f64, rounded to odd; the product has to be exact."""
        kind = vector("double", lanes)
        product = self.emit(f"fmul {kind} {a}, {b}")
        total = self.emit(f"fadd {kind} {product}, {c}")
        part = self.emit(f"fsub {kind} {total}, {product}")
        rest = self.emit(f"fsub {kind} {total}, {part}")
        first = self.emit(f"fsub {kind} {product}, {rest}")
        second = self.emit(f"fsub {kind} {c}, {part}")
        lost = self.emit(f"fadd {kind} {first}, {second}")
        return self.to_odd("f64", lanes, total, lost)

    def to_odd(self, dtype: str, lanes: int, x: str, lost: str) -> str:
        """Return x cut off towards zero with its last bit set, if `lost`, an f64, is not 0."""
        bits = "i64" if dtype == "f64" else "i32"
        integer = vector(bits, lanes)
        flag = vector("i1", lanes)
        inexact = self.emit(f"fcmp one {vector('double', lanes)} {lost}, zeroinitializer")
        plain = self.bitcast(x, dtype, bits, lanes)
        below = self.compare("lt", bits, lanes, plain, "zeroinitializer")
        less = self.compare("lt", "f64", lanes, lost, "zeroinitializer")
        beyond = self.emit(f"xor {flag} {below}, {less}")
        step = self.emit(f"sext {flag} {beyond} to {integer}")
        down = self.emit(f"add {integer} {plain}, {step}")
        odd = self.emit(f"or {integer} {down}, {constant(Const(1, bits, lanes))}")
        chosen = self.emit(f"select {flag} {inexact}, {integer} {odd}, {integer} {plain}")
        return self.bitcast(chosen, bits, dtype, lanes)

    def compare(self, op: str, dtype: str, lanes: int, a: str, b: str) -> str:
        kind = vector(SCALAR[dtype], lanes)
        return self.emit(f"{COMPARE[family(dtype)][op]} {kind} {a}, {b}")

    def call(self, name: str, dtype: str, lanes: int, *operands: str) -> str:
        """Call the overload of an intrinsic whose operands and result are of one type."""
        kind = vector(SCALAR[dtype], lanes)
        flags = self.flags if dtype in FLOATS else ""
        # The sign of a zero extremum is open: one instruction instead of five.
        flags += " nsz" if name in ("llvm.minimum", "llvm.maximum") else ""
        params = ", ".join(f"{kind} {x}" for x in operands)
        return self.emit(f"call{flags} {kind} @{name}.{overload(dtype, lanes)}({params})")

    def unary(self, op: str, dtype: str, lanes: int, x: str) -> str:
        kind = vector(SCALAR[dtype], lanes)
        if dtype in FLOATS:
            if op == "neg":
                value = self.emit(f"fneg {kind} {x}")
                if x in self.products:
                    self.products.add(value)
                return value
            name = {"abs": "fabs", "round": "roundeven"}.get(op, op)
            if x in self.widened and op in WHOLE:
                x = self.call("llvm.arithmetic.fence", dtype, lanes, x)
            return self.call(f"llvm.{name}", dtype, lanes, x)
        match op:
            case "neg":
                return self.emit(f"sub {kind} zeroinitializer, {x}")
            case "not":
                return self.emit(f"xor {kind} {x}, {constant(Const(-1, dtype, lanes))}")
            case "abs" if signed(dtype):
                name = f"@llvm.abs.{overload(dtype, lanes)}"
                return self.emit(f"call {kind} {name}({kind} {x}, i1 false)")
            case "abs" | "floor" | "ceil" | "round" | "trunc":
                return x
        raise AssertionError(f"{op} of {dtype}")

    def convert(self, x: str, source: str, target: str, lanes: int) -> str:
        if source == target:
            return x
        a, b = vector(SCALAR[source], lanes), vector(SCALAR[target], lanes)
        if target == "bool":
            test = "fcmp une" if source in FLOATS else "icmp ne"
            return self.emit(f"{test} {a} {x}, zeroinitializer")
        if "f32" not in (source, target) and {source, target} & HALVES:
            # The short floats go through f32, which machines convert without a library.
            return self.convert(self.convert(x, source, "f32", lanes), "f32", target, lanes)
        if source in FLOATS and target not in FLOATS:
            return self.truncate(x, source, target, lanes)
        size, wanted = DTYPES[source].itemsize, DTYPES[target].itemsize
        if source in FLOATS:
            op = "fpext" if wanted > size else "fptrunc"
        elif target in FLOATS:
            op = "sitofp" if signed(source) else "uitofp"
        elif source != "bool" and size >= wanted:
            op = "trunc"
        else:
            op = "sext" if signed(source) else "zext"
        if a == b:
            return x
        value = self.emit(f"{op} {a} {x} to {b}")
        if source in HALVES:
            self.widened.add(value)
        return value

    def truncate(self, x: str, source: str, target: str, lanes: int) -> str:
        """Convert a float to an integer: through i32 or i64, as x86 and NumPy do it.

        What does not fit, NaN too, gives the least integer; LLVM alone would leave it open.
        """
        kind = vector(SCALAR[source], lanes)
        if target == "u64":
            top = constant(Const(2.0**63, source, lanes))
            high = self.emit(f"fcmp oge {kind} {x}, {top}")
            low = self.emit(f"fsub {kind} {x}, {top}")
            mask = f"select {vector('i1', lanes)} {high}"
            part = self.emit(f"{mask}, {kind} {low}, {kind} {x}")
            whole = self.truncate(part, source, "i64", lanes)
            bit = constant(Const(-(2**63), "i64", lanes))
            long = vector("i64", lanes)
            flip = self.emit(f"{mask}, {long} {bit}, {long} zeroinitializer")
            return self.emit(f"xor {long} {whole}, {flip}")
        through = "i64" if target in ("i64", "u32") else "i32"
        limit = 2.0 ** (DTYPES[through].itemsize * 8 - 1)
        size = self.call("llvm.fabs", source, lanes, x)
        fits = self.emit(f"fcmp olt {kind} {size}, {constant(Const(limit, source, lanes))}")
        least = constant(Const(-limit, source, lanes))
        safe = self.emit(f"select {vector('i1', lanes)} {fits}, {kind} {x}, {kind} {least}")
        whole = self.emit(f"fptosi {kind} {safe} to {vector(SCALAR[through], lanes)}")
        return self.convert(whole, through, target, lanes)

    def bitcast(self, x: str, source: str, target: str, lanes: int) -> str:
        if "bool" in (source, target):
            return self.convert(x, source, target, lanes)
        a, b = vector(SCALAR[source], lanes), vector(SCALAR[target], lanes)
        return x if a == b else self.emit(f"bitcast {a} {x} to {b}")

    def splat(self, x: str, dtype: str, lanes: int) -> str:
        if lanes == 1:
            return x
        kind = SCALAR[dtype]
        if not x.startswith("%"):
            return f"splat ({kind} {x})"
        one = self.emit(f"insertelement <{lanes} x {kind}> poison, {kind} {x}, i64 0")
        whole = f"<{lanes} x {kind}>"
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.emit(f"shufflevector {whole} {one}, {whole} poison, {zeros}")

    def reduce(self, op: str, dtype: str, lanes: int, x: str) -> str:
        """Combine the upper half of the lanes with the lower until one is left."""
        if (op, dtype) == ("or", "bool") and lanes > 1:
            kind = vector("i1", lanes)
            return self.emit(f"call i1 @llvm.vector.reduce.or.v{lanes}i1({kind} {x})")
        assert lanes & (lanes - 1) == 0, f"cannot halve {lanes} lanes"
        while lanes > 1:
            kind, half = vector(SCALAR[dtype], lanes), lanes // 2
            halves = (range(half), range(half, lanes))
            low, high = (self.shuffle(x, kind, tuple(part)) for part in halves)
            x, lanes = self.binary(op, dtype, half, low, high), half
        return x

    def shuffle(self, x: str, kind: str, order: tuple[int, ...], y: str = "poison") -> str:
        """Return lanes of one vector, or of two, in another order; a scalar if it is one lane."""
        if len(order) == 1 and y == "poison":
            return self.emit(f"extractelement {kind} {x}, i64 {order[0]}")
        lanes = ", ".join(f"i32 {i}" for i in order)
        return self.emit(f"shufflevector {kind} {x}, {kind} {y}, <{len(order)} x i32> <{lanes}>")
