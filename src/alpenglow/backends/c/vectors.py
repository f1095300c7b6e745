"""The same on vectors, by the extensions that gcc and clang share.

What has no operator becomes a function that goes through the lanes with the scalar's expression:
compilers make the vector instruction of such a loop where there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from string import Template

from alpenglow.backends.c import machine
from alpenglow.backends.c.scalars import Scalars
from alpenglow.backends.c.spelling import SHORT, SIGNS, memory, unsigned, vector
from alpenglow.ir.types import DTYPES, FLOATS, INTS
from alpenglow.kernel.expr import Const, signed

Formula = Callable[..., str]


class Vectors(Scalars):
    """Writes expressions on vectors of `lanes` elements."""

    def __init__(self, scalars: Scalars, lanes: int) -> None:
        super().__init__(scalars.library)
        self.scalars = scalars
        self.lanes = lanes

    def kind(self, dtype: str) -> str:
        return self.library.type(dtype, self.lanes)

    # ── functions over lanes ──

    def lanewise(
        self, name: str, result: str, given: tuple[tuple[str, str], ...], formula: Formula
    ) -> str:
        """Define a function that applies `formula` to each lane; returns its name.

        `given` holds names and element types of its parameters.
        """
        element = formula(*(_lane(n, d) for n, d in given))
        element = f"-{element}" if result == "bool" else element
        kinds = ", ".join(f"{self.kind(d)} {n}" for n, d in given)
        lines = [
            f"INLINE {self.kind(result)} {name}({kinds}) {{",
            f"  {self.kind(result)} result = {{0}};",
            f"  for (int i = 0; i < {self.lanes}; i++) result[i] = {bare(element)};",
            "  return result;",
            "}",
        ]
        self.library.define(name, "\n".join(lines) + "\n")
        return name

    def over(self, op: str, dtype: str, result: str, formula: Formula, *operands: str) -> str:
        """Apply `formula` to lanes of operands that are all of `dtype`."""
        given = tuple(zip("abc", (dtype,) * len(operands), strict=False))
        name = self.lanewise(f"{op}_{vector(dtype, self.lanes)}", result, given, formula)
        return f"{name}({', '.join(map(bare, operands))})"

    # ── values ──

    def constant(self, c: Const) -> str:
        return self.splat(self.scalars.constant(Const(c.value, c.dtype)), c.dtype)

    def splat(self, x: str, dtype: str) -> str:
        name, kind = f"splat_{vector(dtype, self.lanes)}", self.kind(dtype)
        element = self.library.type(dtype)
        value = "-x" if dtype == "bool" else "x"
        lanes = ", ".join([value] * self.lanes)
        self.library.define(
            name, f"INLINE {kind} {name}({element} x) {{\n  return ({kind}){{{lanes}}};\n}}\n"
        )
        return f"{name}({bare(x)})"

    def iota(self) -> str:
        return f"({self.kind('i64')}){{{', '.join(map(str, range(self.lanes)))}}}"

    # ── operations ──

    def binary(self, op: str, dtype: str, a: str, b: str) -> str:
        plain = dtype in INTS if op == "rem" else dtype in ("f32", "f64", *INTS)
        if dtype == "bool":
            return self.logic(op, a, b)
        if op in ("min", "max") and dtype in ("f32", "f64"):
            return self.known(op, dtype, a, b)
        if op not in SIGNS or not plain:
            return self.over(op, dtype, dtype, lambda x, y: self.scalars.binary(op, dtype, x, y),
                             a, b)  # fmt: skip
        if op in ("add", "sub", "mul", "shl") and dtype in INTS and signed(dtype):
            wide = self.kind(unsigned(dtype))
            return f"(({self.kind(dtype)})(({wide}){a} {SIGNS[op]} ({wide}){b}))"
        return f"({a} {SIGNS[op]} {b})"

    def compare(self, op: str, dtype: str, a: str, b: str) -> str:
        if dtype in SHORT:
            a, b = self.convert(a, dtype, "f32"), self.convert(b, dtype, "f32")
        if dtype == "bool" and op not in ("eq", "ne"):
            a, b = b, a  # true is -1
        size = DTYPES["f32" if dtype in SHORT else dtype].itemsize
        kind, text = self.kind("bool"), f"({a} {SIGNS[op]} {b})"
        return f"(({kind}){text})" if size == 4 or dtype == "bool" else self.as_kind(text, "bool")

    def fma(self, dtype: str, a: str, b: str, c: str, loose: bool = False) -> str:
        if dtype not in FLOATS:
            return super().fma(dtype, a, b, c)
        if dtype in SHORT:
            return self.over(
                "fma", dtype, dtype, lambda x, y, z: self.scalars.fma(dtype, x, y, z), a, b, c
            )
        return f"{self.fused(dtype, loose)}({bare(a)}, {bare(b)}, {bare(c)})"

    def fused(self, dtype: str, loose: bool) -> str:
        """Define the function of a * b + c; returns its name."""
        kind, n = self.kind(dtype), self.lanes
        name = f"{'accumulate' if loose else 'fma'}_{kind}"
        if (dtype, n // 2) in machine.FUSED and (dtype, n) not in machine.FUSED:
            below = Vectors(self.scalars, n // 2)
            half, inner = below.kind(dtype), below.fused(dtype, loose)
            low, high = (
                ", ".join(self.shuffle(x, dtype, tuple(part)) for x in "abc")
                for part in (range(n // 2), range(n // 2, n))
            )
            joined = ", ".join(f"{x}[{i}]" for x in ("low", "high") for i in range(n // 2))
            body = [
                f"  const {half} low = {inner}({low});",
                f"  const {half} high = {inner}({high});",
                f"  return ({kind}){{{joined}}};",
            ]
        elif loose:
            body = machine.fused(dtype, n, kind, ["  return a * b + c;"])
        else:
            lane = self.scalars.fma(dtype, "a[i]", "b[i]", "c[i]")
            loop = [f"  {self.each(f'a[i] = {lane};')}", "  return a;"]
            body = machine.fused(dtype, n, kind, loop)
        head = f"INLINE {kind} {name}({kind} a, {kind} b, {kind} c) {{"
        self.library.define(name, "\n".join([head, *body, "}"]) + "\n")
        return name

    def known(self, op: str, dtype: str, *operands: str) -> str:
        """Call a function of floats that is written in operations on vectors."""
        kind, bits = self.kind(dtype), self.kind(f"i{DTYPES[dtype].itemsize * 8}")
        words = {"v": kind, "i": bits, "select": self.chosen(dtype), **machine.WHOLE[dtype]}
        if op in ("floor", "ceil"):
            self.known("trunc", dtype, "x")
            words["trunc"] = f"trunc_{kind}"
        body = Template(machine.BODIES[op]).substitute(words)
        given = ", ".join(f"{kind} {x}" for x in ("ab" if len(operands) == 2 else "x"))
        self.library.define(
            f"{op}_{kind}", f"INLINE {kind} {op}_{kind}({given}) {{\n  {body}\n}}\n"
        )
        return f"{op}_{kind}({', '.join(map(bare, operands))})"

    def chosen(self, dtype: str) -> str:
        """Define what chooses by the result of a comparison of `dtype`; returns its name."""
        kind, bits = self.kind(dtype), self.kind(f"i{DTYPES[dtype].itemsize * 8}")
        name = f"choose_{kind}"
        choice = f"({kind})((c & ({bits})a) | (~c & ({bits})b))"
        self.library.define(
            name, f"INLINE {kind} {name}({bits} c, {kind} a, {kind} b) {{\n  return {choice};\n}}\n"
        )
        return name

    def truncated(self, x: str, source: str, target: str) -> str:
        """Convert floats to i32 or i64; what does not fit becomes the least integer."""
        kind, result = self.kind(source), self.kind(target)
        name = f"{result}_of_{kind}"
        limit, least = machine.LIMITS[target]
        suffix = "f" if source == "f32" else ""
        fits = f"{self.known('abs', source, 'x')} < {limit}{suffix}"
        wide = f"__builtin_convertvector({fits}, {result})"
        lines = [
            f"INLINE {result} {name}({kind} x) {{",
            f"  const {result} fits = {wide};",
            f"  const {kind} near = {self.chosen(source)}({fits}, x, ({kind}){{0}});",
            f"  return (fits & __builtin_convertvector(near, {result})) | (~fits & {least});",
            "}",
        ]
        self.library.define(name, "\n".join(lines) + "\n")
        return f"{name}({bare(x)})"

    def unary(self, op: str, dtype: str, x: str) -> str:
        if op == "neg" and dtype in ("f32", "f64"):
            return f"(-{x})"
        if op == "not":
            return f"(~{x})"
        if op == "neg" and dtype in INTS:
            return self.binary("sub", dtype, f"({self.kind(dtype)}){{0}}", x)
        if op in machine.BODIES and dtype in ("f32", "f64"):
            return self.known(op, dtype, x)
        return self.over(op, dtype, dtype, lambda a: self.scalars.unary(op, dtype, a), x)

    def select(self, dtype: str, condition: str, x: str, y: str) -> str:
        size = 4 if dtype == "bool" else DTYPES[dtype].itemsize
        if size != 4:
            bits = self.kind(f"i{size * 8}")
            condition = f"__builtin_convertvector({bare(condition)}, {bits})"
        if dtype == "bool":
            return f"(({condition} & {x}) | (~{condition} & {y}))"
        return f"{self.chosen(dtype)}({bare(condition)}, {bare(x)}, {bare(y)})"

    def convert(self, x: str, source: str, target: str) -> str:
        if source == target:
            return x
        exact = (*INTS, "f32", "f64")
        if source in exact and target in exact and (source in INTS or target in FLOATS):
            return self.as_kind(x, target)
        if "f32" not in (source, target) and (source in SHORT or target in SHORT):
            return self.convert(self.convert(x, source, "f32"), "f32", target)
        if source in ("f32", "f64") and target in machine.LIMITS:
            return self.truncated(x, source, target)
        if source in ("f32", "f64") and target in INTS and target != "u64":
            through = "i64" if target == "u32" else "i32"
            return self.as_kind(self.truncated(x, source, through), target)
        return self.over(f"{vector(target, self.lanes)}_of", source, target,
                         lambda a: self.scalars.convert(a, source, target), x)  # fmt: skip

    def as_kind(self, x: str, target: str) -> str:
        return f"__builtin_convertvector({bare(x)}, {self.kind(target)})"

    def bitcast(self, x: str, source: str, target: str) -> str:
        if source == target:
            return x
        if source == "bool":
            return self.convert(x, "bool", unsigned(target))
        if target == "bool":
            return self.convert(f"(({self.kind(unsigned(source))}){x})", unsigned(source), "bool")
        return f"(({self.kind(target)}){x})"

    def lookup(self, table: tuple[float, ...], at: str) -> str:
        one = self.scalars.lookup(table, "a")
        name = f"{one.partition('(')[0]}_x{self.lanes}"
        full = self.lanewise(name, "f32", (("a", "i32"),),
                             lambda lane: self.scalars.lookup(table, lane))  # fmt: skip
        return f"{full}({bare(at)})"

    def intrinsic(self, name: str, *operands: str) -> str:
        dtype = "f32" if name == "vdpbf16ps" else "i32"
        given = (("a", dtype), ("b", "i32"), ("c", "i32"))
        full = self.lanewise(f"{name}_x{self.lanes}", dtype, given,
                             lambda *lane: self.scalars.intrinsic(name, *lane))  # fmt: skip
        return f"{full}({', '.join(map(bare, operands))})"

    # ── lanes among each other ──

    def shuffle(self, x: str, dtype: str, order: tuple[int, ...]) -> str:
        """Return lanes of the vector that `x` names; a scalar if it is one."""
        if len(order) == 1:
            return _lane(x, dtype, str(order[0]))
        lanes = ", ".join(f"{x}[{i}]" for i in order)
        return f"({self.library.type(dtype, len(order))}){{{lanes}}}"

    def blend(self, x: str, y: str, dtype: str, order: tuple[int, ...]) -> str:
        """Return lanes of two vectors that have names."""
        n = self.lanes
        lanes = [f"{x}[{i}]" if i < n else f"{y}[{i - n}]" for i in order]
        if len(order) == 1:
            return f"({lanes[0]} != 0)" if dtype == "bool" else lanes[0]
        return f"({self.library.type(dtype, len(order))}){{{', '.join(lanes)}}}"

    def reduce(self, op: str, x: str, dtype: str) -> str:
        return f"{self.reduction(op, dtype)}({bare(x)})"

    def reduction(self, op: str, dtype: str) -> str:
        """Define the function that combines the halves until one lane is left."""
        half = self.lanes // 2
        name = f"reduce_{op}_{vector(dtype, self.lanes)}"
        if half == 1:
            low, high = (_lane("x", dtype, number) for number in "01")
            lines = [f"  return {bare(self.scalars.binary(op, dtype, low, high))};"]
        else:
            below = Vectors(self.scalars, half)
            inner, kind = below.reduction(op, dtype), below.kind(dtype)
            low = self.shuffle("x", dtype, tuple(range(half)))
            high = self.shuffle("x", dtype, tuple(range(half, self.lanes)))
            lines = [
                f"  const {kind} low = {low};",
                f"  const {kind} high = {high};",
                f"  return {inner}({bare(below.binary(op, dtype, 'low', 'high'))});",
            ]
        head = f"INLINE {self.library.type(dtype)} {name}({self.kind(dtype)} x) {{"
        self.library.define(name, "\n".join([head, *lines, "}"]) + "\n")
        return name

    # ── memory ──

    def load(self, place: str, dtype: str, mask: str = "") -> str:
        """Return the elements at `place`; where `mask` is false, zeros."""
        cell = memory(dtype)
        if not mask and dtype != "bool":
            body = ["__builtin_memcpy(&x, place, sizeof x);"]
        else:
            found = _loaded(dtype, "place[i]" if dtype != "c64" else "load_c64(&place[i])")
            zero = "mask[i] ? {} : 0" if mask else "{}"
            loop = self.each(f"x[i] = {zero.format(found)};")
            body = machine.masked("load", dtype, self.lanes, loop) if mask else [loop]
        return self.access("load", dtype, f"const {cell} *place", place, "", mask, body)

    def gather(self, buffer: str, at: str, dtype: str, mask: str = "") -> str:
        found = _loaded(dtype, "base[at[i]]" if dtype != "c64" else "load_c64(&base[at[i]])")
        zero = "mask[i] ? {} : 0" if mask else "{}"
        body = [self.each(f"x[i] = {zero.format(found)};")]
        given = f"const {memory(dtype)} *base"
        return self.access("gather", dtype, given, buffer, at, mask, body)

    def access(
        self, verb: str, dtype: str, given: str, place: str, at: str, mask: str, body: list[str]
    ) -> str:
        if dtype == "c64":
            self.library.need("load_c64")
        name = f"{verb}_{vector(dtype, self.lanes)}" + ("_where" if mask else "")
        parameters, operands = [given], [place]
        for text, kind, label in ((at, "i64", "at"), (mask, "bool", "mask")):
            if text:
                parameters.append(f"{self.kind(kind)} {label}")
                operands.append(bare(text))
        lines = [
            f"INLINE {self.kind(dtype)} {name}({', '.join(parameters)}) {{",
            f"  {self.kind(dtype)} x = {{0}};",
            *(line if line.startswith("#") else f"  {line}" for line in body),
            "  return x;",
            "}",
        ]
        self.library.define(name, "\n".join(lines) + "\n")
        return f"{name}({', '.join(operands)})"

    def store(self, place: str, value: str, dtype: str, at: str = "", mask: str = "") -> str:
        """Return the call that stores `value`, to `place` or to the places `at` of it."""
        verb, cell = "scatter" if at else "store", memory(dtype)
        element = "-x[i]" if dtype == "bool" else "x[i]"
        element = f"({cell}){element}" if dtype == "bool" else element
        target = "place[at[i]]" if at else "place[i]"
        put = f"store_c64(&{target}, x[i]);" if dtype == "c64" else f"{target} = {element};"
        if dtype == "c64":
            self.library.need("store_c64")
        guard = "if (mask[i]) " if mask else ""
        simple = not at and not mask and dtype != "bool"
        body = ["__builtin_memcpy(place, &x, sizeof x);" if simple else self.each(guard + put)]
        if mask and not at:
            body = machine.masked("store", dtype, self.lanes, body[0])
        name = f"{verb}_{vector(dtype, self.lanes)}" + ("_where" if mask else "")
        parameters, operands = [f"{cell} *place"], [place]
        given = ((at, "i64", "at"), (value, dtype, "x"), (mask, "bool", "mask"))
        for text, kind, label in given:
            if text:
                parameters.append(f"{self.kind(kind)} {label}")
                operands.append(bare(text))
        head = f"INLINE void {name}({', '.join(parameters)}) {{"
        lines = [line if line.startswith("#") else f"  {line}" for line in body]
        self.library.define(name, "\n".join([head, *lines, "}"]) + "\n")
        return f"{name}({', '.join(operands)})"

    def each(self, line: str) -> str:
        return f"for (int i = 0; i < {self.lanes}; i++) {line}"


def _lane(name: str, dtype: str, number: str = "i") -> str:
    """Return a lane as the scalar that it stands for."""
    return f"({name}[{number}] != 0)" if dtype == "bool" else f"{name}[{number}]"


def _loaded(dtype: str, element: str) -> str:
    return f"-({element} != 0)" if dtype == "bool" else element


def bare(text: str) -> str:
    """Take off parentheses around a whole expression."""
    if not text.startswith("("):
        return text
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 else text
    return text
