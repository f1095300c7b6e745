"""Operations on vectors, by the extensions that gcc and clang share.

What has no operator becomes a function that goes through the lanes with the scalar's expression:
compilers make the vector instruction of such a loop where there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from string import Template

from alpenglow.ir.types import DTYPES, INTS
from alpenglow.kernel.intrinsics import INTRINSICS
from alpenglow.render.c import machine
from alpenglow.render.c.library import CLibrary
from alpenglow.render.c.spelling import memory
from alpenglow.render.clike.operations import Operations, Vectors
from alpenglow.render.clike.spelling import SIGNS, bare, unsigned, vector

Formula = Callable[..., str]


class GnuVectors(Vectors):
    """Writes expressions on vectors; `scalars` those on their lanes."""

    library: CLibrary

    def __init__(self, scalars: Operations, lanes: int) -> None:
        super().__init__(scalars.library, lanes)
        self.scalars = scalars

    def at(self, lanes: int) -> GnuVectors:
        return GnuVectors(self.scalars, lanes)

    # ── functions over lanes ──

    def lanewise(
        self, name: str, result: str, params: tuple[tuple[str, str], ...], formula: Formula
    ) -> str:
        """Define a function that applies `formula` to each lane; returns its name.

        `params` holds names and element types of its parameters.
        """
        element = formula(*(_lane(n, d) for n, d in params))
        element = f"-{element}" if result == "bool" else bare(element)
        kinds = ", ".join(f"{self.kind(d)} {n}" for n, d in params)
        start, loop = f"{self.kind(result)} result = {{0}};", self.each(f"result[i] = {element};")
        return self.library.define(self.kind(result), name, kinds, start, loop, "return result;")

    def over(self, op: str, dtype: str, result: str, formula: Formula, *operands: str) -> str:
        """Apply `formula` to lanes of operands that are all of `dtype`."""
        params = tuple(zip("abc", (dtype,) * len(operands), strict=False))
        name = self.lanewise(f"{op}_{vector(dtype, self.lanes)}", result, params, formula)
        return _call(name, *operands)

    # ── values ──

    def zero(self, dtype: str) -> str:
        return f"({self.kind(dtype)}){{0}}"

    def splat(self, x: str, dtype: str) -> str:
        kind, value = self.kind(dtype), "-x" if dtype == "bool" else "x"
        element, lanes = self.library.type(dtype), ", ".join([value] * self.lanes)
        name = f"splat_{vector(dtype, self.lanes)}"
        self.library.define(kind, name, f"{element} x", f"return ({kind}){{{lanes}}};")
        return _call(name, x)

    def iota(self) -> str:
        return f"({self.kind('i64')}){{{', '.join(map(str, range(self.lanes)))}}}"

    # ── operations ──

    def called(self, op: str, dtype: str, *operands: str) -> str:
        if op in ("fma", "accumulate"):
            return _call(self.fused(dtype, op), *operands)
        if op in machine.BODIES and dtype in ("f32", "f64"):
            return self.known(op, dtype, *operands)
        return self.over(op, dtype, dtype, lambda *x: self.scalars.called(op, dtype, *x), *operands)

    def compare(self, op: str, dtype: str, a: str, b: str) -> str:
        if dtype == "bool" and op not in ("eq", "ne"):
            a, b = b, a  # true is -1
        size, text = DTYPES[dtype].itemsize, f"({a} {SIGNS[op]} {b})"
        same = size == 4 or dtype == "bool"
        return f"(({self.kind('bool')}){text})" if same else self.cast(text, "bool")

    def fused(self, dtype: str, op: str) -> str:
        """Define the function of a * b + c; returns its name."""
        kind, n = self.kind(dtype), self.lanes
        name, body = f"{op}_{kind}", []
        if (dtype, n // 2) in machine.FUSED and (dtype, n) not in machine.FUSED:
            below = self.at(n // 2)
            half, inner = below.kind(dtype), below.fused(dtype, op)
            for label, first in (("low", 0), ("high", n // 2)):
                part = tuple(range(first, first + n // 2))
                operands = ", ".join(self.shuffle(x, dtype, part) for x in "abc")
                body.append(f"const {half} {label} = {inner}({operands});")
            joined = ", ".join(f"{x}[{i}]" for x in ("low", "high") for i in range(n // 2))
            body.append(f"return ({kind}){{{joined}}};")
        elif op == "accumulate":
            body = machine.fused(dtype, n, kind, ["return a * b + c;"])
        else:
            lane = self.scalars.fma(dtype, "a[i]", "b[i]", "c[i]")
            loop = [self.each(f"a[i] = {lane};"), "return a;"]
            body = machine.fused(dtype, n, kind, loop)
        return self.library.define(kind, name, f"{kind} a, {kind} b, {kind} c", *body)

    def known(self, op: str, dtype: str, *operands: str) -> str:
        """Call a function of floats that is written in operations on vectors."""
        kind, bits = self.kind(dtype), self.kind(f"i{DTYPES[dtype].itemsize * 8}")
        words = {"v": kind, "i": bits, "select": self.chosen(dtype), **machine.WHOLE[dtype]}
        if op in ("floor", "ceil"):
            self.known("trunc", dtype, "x")
            words["trunc"] = f"trunc_{kind}"
        body = Template(machine.BODIES[op]).substitute(words)
        params = ", ".join(f"{kind} {x}" for x in ("ab" if len(operands) == 2 else "x"))
        return _call(self.library.define(kind, f"{op}_{kind}", params, body), *operands)

    def chosen(self, dtype: str) -> str:
        """Define what chooses by the result of a comparison of `dtype`; returns its name."""
        kind, bits = self.kind(dtype), self.kind(f"i{DTYPES[dtype].itemsize * 8}")
        choice = f"return ({kind})((c & ({bits})a) | (~c & ({bits})b));"
        parameters = f"{bits} c, {kind} a, {kind} b"
        return self.library.define(kind, f"choose_{kind}", parameters, choice)

    def truncated(self, x: str, source: str, target: str) -> str:
        kind, result = self.kind(source), self.kind(target)
        if target not in machine.LIMITS:
            return self.over(f"{result}_of", source, target,
                             lambda a: self.scalars.truncated(a, source, target), x)  # fmt: skip
        limit, least = machine.LIMITS[target]
        suffix = "f" if source == "f32" else ""
        fits = f"{self.known('abs', source, 'x')} < {limit}{suffix}"
        lines = [
            f"const {result} fits = {self.cast(fits, target)};",
            f"const {kind} near = {self.chosen(source)}({fits}, x, ({kind}){{0}});",
            f"return (fits & {self.cast('near', target)}) | (~fits & {least});",
        ]
        return _call(self.library.define(result, f"{result}_of_{kind}", f"{kind} x", *lines), x)

    def select(self, dtype: str, condition: str, x: str, y: str) -> str:
        size = 4 if dtype == "bool" else DTYPES[dtype].itemsize
        if dtype == "bool":
            return f"(({condition} & {x}) | (~{condition} & {y}))"
        condition = condition if size == 4 else self.cast(condition, f"i{size * 8}")
        return _call(self.chosen(dtype), condition, x, y)

    def convert(self, x: str, source: str, target: str) -> str:
        if source == target or {source, target} <= INTS | {"f32", "f64"}:
            return super().convert(x, source, target)
        return self.over(f"{vector(target, self.lanes)}_of", source, target,
                         lambda a: self.scalars.convert(a, source, target), x)  # fmt: skip

    def cast(self, x: str, target: str) -> str:
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
        return _call(full, at)

    def intrinsic(self, name: str, *operands: str) -> str:
        dtype = INTRINSICS[name].result
        params = (("a", dtype), ("b", "i32"), ("c", "i32"))
        full = self.lanewise(f"{name}_x{self.lanes}", dtype, params,
                             lambda *lane: self.scalars.intrinsic(name, *lane))  # fmt: skip
        return _call(full, *operands)

    # ── lanes among each other ──

    def shuffle(self, x: str, dtype: str, order: tuple[int, ...]) -> str:
        return self.blend(x, "", dtype, order)

    def blend(self, x: str, y: str, dtype: str, order: tuple[int, ...]) -> str:
        """Return lanes of two vectors that have names."""
        n = self.lanes
        lanes = [f"{x}[{i}]" if i < n else f"{y}[{i - n}]" for i in order]
        if len(order) == 1:
            return f"({lanes[0]} != 0)" if dtype == "bool" else lanes[0]
        return f"({self.library.type(dtype, len(order))}){{{', '.join(lanes)}}}"

    # ── memory ──

    def load(self, place: str, dtype: str, at: str = "", mask: str = "") -> str:
        """Return elements at `place`, or at the places `at` of it; zeros where not `mask`."""
        verb, base = ("gather", "base") if at else ("load", "place")
        cell = f"{base}[at[i]]" if at else f"{base}[i]"
        element = f"load_c64(&{cell})" if dtype == "c64" else cell
        element = f"-({element} != 0)" if dtype == "bool" else element
        loop = self.each(f"x[i] = {f'mask[i] ? {element} : 0' if mask else element};")
        body = self.moved(verb, dtype, loop, "__builtin_memcpy(&x, place, sizeof x);", mask)
        lines = [f"{self.kind(dtype)} x = {{0}};", *body, "return x;"]
        pointer = f"const {memory(dtype)} *{base}"
        others = ((at, "i64", "at"), (mask, "bool", "mask"))
        return self.access(verb, self.kind(dtype), dtype, (place, pointer), others, lines)

    def store(self, place: str, value: str, dtype: str, at: str = "", mask: str = "") -> str:
        """Return the call that stores `value`, to `place` or to the places `at` of it."""
        verb, cell = ("scatter", "place[at[i]]") if at else ("store", "place[i]")
        element = f"({memory(dtype)})-x[i]" if dtype == "bool" else "x[i]"
        put = f"store_c64(&{cell}, x[i]);" if dtype == "c64" else f"{cell} = {element};"
        loop = self.each(f"if (mask[i]) {put}" if mask else put)
        lines = self.moved(verb, dtype, loop, "__builtin_memcpy(place, &x, sizeof x);", mask)
        pointer = f"{memory(dtype)} *place"
        others = ((at, "i64", "at"), (value, dtype, "x"), (mask, "bool", "mask"))
        return self.access(verb, "void", dtype, (place, pointer), others, lines)

    def moved(self, verb: str, dtype: str, loop: str, copy: str, mask: str) -> list[str]:
        """Return what moves elements: `loop`, or as a whole if they are neighbours."""
        if verb in ("gather", "scatter") or (dtype == "bool" and not mask):
            return [loop]
        return machine.masked(verb, dtype, self.lanes, loop) if mask else [copy]

    def access(
        self,
        verb: str,
        kind: str,
        dtype: str,
        place: tuple[str, str],
        others: tuple[tuple[str, str, str], ...],
        lines: list[str],
    ) -> str:
        """Call a function on memory, of those operands that are there."""
        if dtype == "c64":
            self.library.need("load_c64" if verb in ("load", "gather") else "store_c64")
        there = [(text, f"{self.kind(d)} {label}") for text, d, label in others if text]
        operands, parameters = zip(place, *there, strict=True)
        where = "_where" if others[-1][0] else ""
        name = f"{verb}_{vector(dtype, self.lanes)}{where}"
        return _call(self.library.define(kind, name, ", ".join(parameters), *lines), *operands)

    def each(self, line: str) -> str:
        return f"for (int i = 0; i < {self.lanes}; i++) {line}"


def _call(name: str, *operands: str) -> str:
    return f"{name}({', '.join(map(bare, operands))})"


def _lane(name: str, dtype: str) -> str:
    """Return a lane as the scalar that it stands for."""
    return f"({name}[i] != 0)" if dtype == "bool" else f"{name}[i]"
