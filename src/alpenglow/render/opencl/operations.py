"""The operations of the kernel language as OpenCL C, on scalars and vectors alike."""

from __future__ import annotations

from alpenglow.ir.types import DTYPES, FLOATS
from alpenglow.kernel.expr import Const, signed
from alpenglow.render.clike import library as clike
from alpenglow.render.clike.operations import Operations, Vectors
from alpenglow.render.clike.spelling import SIGNS, bare, negative, vector
from alpenglow.render.opencl.spelling import literal, mask, typename

_CALLS = {"abs": "fabs", "round": "rint"}
_CONTRACTION = "#pragma OPENCL FP_CONTRACT OFF\n"
_DOUBLE = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
_SUBGROUPS = """#ifdef cl_khr_subgroups
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#endif
"""
NEWER = "// OpenCL C 3.0\n"
"""How a text begins that is not OpenCL C 1.2."""

DOTS = {"usdot": "dot_4x8packed_us_int", "sdot": "dot_4x8packed_ss_int"}
"""What devices with cl_khr_integer_dot_product have, without its sum."""
_OWN = "const uint own = get_sub_group_local_id();"
_SOURCES = {
    "xor": ["const uint from = get_sub_group_local_id() ^ n;"],
    "from": ["const uint from = n;"],
    "up": [_OWN, "const uint from = own < n ? own : own - n;"],
    "down": [_OWN, "const uint from = own + n < get_sub_group_size() ? own + n : own;"],
}
"""Which thread a value comes from; past the ends, from the thread itself."""


class KernelLibrary(clike.Library):
    """The functions that kernels call, for each type one."""

    language = "OpenCL C"
    inline = "static"

    def __init__(self, fast: bool = False) -> None:
        """If it is `fast`, a product that is added to something need not be rounded before."""
        super().__init__()
        self.contraction = "" if fast else _CONTRACTION

    def text(self) -> str:
        newer = NEWER if "dots" in self.types else ""
        return "\n".join(
            [newer + self.contraction + "".join(self.types.values()), *self.functions.values()]
        )

    def type(self, dtype: str, lanes: int = 1) -> str:
        if dtype == "f64":
            self.types[dtype] = _DOUBLE
        return typename(dtype, lanes)


class Native(Vectors):
    """Operators and functions of the language know vectors, too."""

    def __init__(self, library: clike.Library, lanes: int = 1) -> None:
        super().__init__(library, lanes)
        self.scalars: Operations = self if lanes == 1 else Native(library)

    def at(self, lanes: int) -> Native:
        return Native(self.library, lanes)

    # ── values ──

    def constant(self, c: Const) -> str:
        return negative(literal(c)) if self.lanes == 1 else super().constant(c)

    def zero(self, dtype: str) -> str:
        return super().zero(dtype) if self.lanes == 1 else self.splat("0", dtype)

    def splat(self, x: str, dtype: str) -> str:
        return f"({self.kind(dtype)})({f'-{x}' if dtype == 'bool' else bare(x)})"

    def iota(self) -> str:
        return f"({self.kind('i64')})({', '.join(map(str, range(self.lanes)))})"

    def shuffle(self, x: str, dtype: str, order: tuple[int, ...]) -> str:
        lanes = f"{x}.s{''.join(f'{i:x}' for i in order)}"
        return f"({lanes} != 0)" if dtype == "bool" and len(order) == 1 else lanes

    # ── operations ──

    def subgroup_barrier(self) -> str:
        """Return the function at which threads of a subgroup wait, and note that there are some."""
        self.library.types["subgroups"] = _SUBGROUPS
        return "sub_group_barrier"

    def across(self, op: str, dtype: str, x: str, at: str) -> str:
        """Return the call of a function that exchanges values in a subgroup, which it defines."""
        self.library.types["subgroups"] = _SUBGROUPS
        kind = self.kind(dtype)
        if self.lanes > 1:
            scalars = Native(self.library)
            lanes = (f"x.s{i:x}" for i in range(self.lanes))
            # A bool in a vector is an i32.
            each = (scalars.across(op, "i32" if dtype == "bool" else dtype, v, "n") for v in lanes)
            lines = [f"return ({kind})({', '.join(each)});"]
        else:
            value = "(int)x" if dtype == "bool" else "x"
            end = " != 0" if dtype == "bool" else ""
            lines = [*_SOURCES[op], f"return sub_group_shuffle({value}, from){end};"]
        name = f"across_{op}_{vector(dtype, self.lanes)}"
        return f"{self.library.define(kind, name, f'{kind} x, uint n', *lines)}({x}, {at})"

    def intrinsic(self, name: str, *operands: str) -> str:
        if name not in DOTS:
            return super().intrinsic(name, *operands)
        self.library.types["dots"] = ""  # functions of OpenCL C 3.0, behind no pragma
        kind = self.kind("i32")
        if self.lanes > 1:
            scalars = Native(self.library)
            lanes = (f".s{i:x}" for i in range(self.lanes))
            each = (scalars.intrinsic(name, *(f"{x}{lane}" for x in "abc")) for lane in lanes)
            value = f"({kind})({', '.join(map(bare, each))})"
        else:
            value = self.binary("add", "i32", "a", f"{DOTS[name]}((uint)b, (uint)c)")
        parameters = ", ".join(f"{kind} {x}" for x in "abc")
        called = self.library.define(
            kind, f"{name}_{vector('i32', self.lanes)}", parameters, f"return {bare(value)};"
        )
        return f"{called}({', '.join(map(bare, operands))})"

    def called(self, op: str, dtype: str, *operands: str) -> str:
        name = op
        if dtype in FLOATS:
            name = self.exact(op, dtype) if op in ("min", "max", "rem") else _CALLS.get(op, op)
        if dtype == "i64":  # addresses are written as plain numbers, which are of int
            operands = tuple(f"{x}L" if x.isdecimal() else x for x in map(bare, operands))
        text = f"{name}({', '.join(map(bare, operands))})"
        return f"as_{self.kind(dtype)}({text})" if op == "abs" and signed(dtype) else text

    def exact(self, op: str, dtype: str) -> str:
        """Define a `min` or `max` that propagates NaN, or `rem`; return its name.

        The latter goes lane by lane, as PoCL's of vectors is wrong.
        """
        kind = self.kind(dtype)
        if op == "rem":
            places = [f".s{i:x}" for i in range(self.lanes)] if self.lanes > 1 else [""]
            value = f"({kind})({', '.join(f'fmod(a{p}, b{p})' for p in places)})"
        elif self.lanes == 1:
            value = f"isnan(a) || isnan(b) ? a + b : f{op}(a, b)"
        else:
            value = f"select(f{op}(a, b), a + b, isnan(a) | isnan(b))"
        name = f"{op}_{vector(dtype, self.lanes)}"
        return self.library.define(kind, name, f"{kind} a, {kind} b", f"return {value};")

    def truncated(self, x: str, source: str, target: str) -> str:
        kind, result, top = self.kind(source), self.kind(target), 8 * DTYPES[target].itemsize - 1
        least = self.constant(Const(-(1 << top), target))
        limit = self.constant(Const(2.0**top, source))
        if self.lanes == 1:
            value = f"fabs(x) < {limit} ? ({result})x : {least}"
        else:
            fits = self.cast(f"isless(fabs(x), {limit})", target)
            value = f"select({least}, {self.cast('x', target)}, {fits})"
        name = f"{target}_of_{vector(source, self.lanes)}"
        return f"{self.library.define(result, name, f'{kind} x', f'return {value};')}({bare(x)})"

    def compare(self, op: str, dtype: str, a: str, b: str) -> str:
        if self.lanes == 1:
            return super().compare(op, dtype, a, b)
        text = f"({a} {SIGNS[op]} {b})"
        return text if mask(dtype) == "i32" else self.cast(text, "bool")

    def select(self, dtype: str, condition: str, x: str, y: str) -> str:
        if self.lanes == 1:
            return super().select(dtype, condition, x, y)
        condition = condition if mask(dtype) == "i32" else self.cast(condition, mask(dtype))
        return f"select({bare(y)}, {bare(x)}, {bare(condition)})"

    def convert(self, x: str, source: str, target: str) -> str:
        if source == "bool" != target and self.lanes > 1:
            x = f"({x} & 1)"
        return super().convert(x, source, target)

    def cast(self, x: str, target: str) -> str:
        plain = self.lanes == 1
        return super().cast(x, target) if plain else f"convert_{self.kind(target)}({bare(x)})"

    def reread(self, x: str, target: str) -> str:
        return super().reread(x, target) if self.lanes == 1 else self.bitcast(x, "", target)

    def bitcast(self, x: str, source: str, target: str) -> str:
        if source == target or "bool" in (source, target):
            return self.convert(x, source, target)
        return f"as_{self.kind(target)}({bare(x)})"
