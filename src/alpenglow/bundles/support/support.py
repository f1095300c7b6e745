"""What a bundle brings along so that it needs no library: functions that LLVM calls by name.

Where a machine has no instruction for something, LLVM calls a function of the C library or of the
compiler's runtime.  Those that a bundle may need are made here, as modules of LLVM IR, one for each
name; they become local to the bundle's object.  With `freestanding` memcpy and memset are, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from alpenglow.bundles.support import softfloat
from alpenglow.bundles.support.copying import ATTRIBUTES, copying
from alpenglow.bundles.support.integer import Function, Word, divide
from alpenglow.bundles.support.softfloat import BF16, F16, F32, F64, BinaryFormat
from alpenglow.ir.target import Target
from alpenglow.render.llvm.writer import Writer

ALLOWED = frozenset({"memcpy", "memset"})
"""What a bundle that is not freestanding leaves to the C library."""

Make = Callable[[Function, list[Word]], Word | tuple[Word, Word]]


@dataclass(frozen=True, slots=True)
class Helper:
    """A function: LLVM's types of its result and parameters, and what it computes."""

    result: str
    parameters: tuple[str, ...]
    make: Make


def support(name: str, target: Target) -> str | None:
    """Return a module that defines the function `name`, ready to be linked; None if unknown."""
    text = copying(name, target)
    if text is not None:
        return text
    if name == "fmaf" and not target.triple.startswith("thumb"):
        return _fused_by_f64()
    helper = _helpers(target).get(name)
    return None if helper is None else _defined(name, helper)


def _fused_by_f64() -> str:
    """Return fmaf for machines with f64, where the product is exact and the sum has digits left."""
    w = Writer(fast=False)
    a, b, c = (w.convert(f"%p{i}", "f32", "f64", 1) for i in range(3))
    result = w.convert(w.odd_fma(1, a, b, c), "f64", "f32", 1)
    head = f'define hidden float @"fmaf"(float %p0, float %p1, float %p2) {ATTRIBUTES} {{'
    return "\n".join([head, "entry:", *w.lines, f"  ret float {result}", "}"]) + "\n"


def _defined(name: str, helper: Helper) -> str:
    f = Function()
    words = [
        Word(f, f.emit(f"bitcast {t} %p{i} to i{_bits(t)}") if t[0] != "i" else f"%p{i}", _bits(t))
        for i, t in enumerate(helper.parameters)
    ]
    returned, result = helper.make(f, words), helper.result
    if isinstance(returned, Word):
        plain, value = f"i{returned.bits}", returned.name
        if result != plain:
            value = f.emit(f"bitcast {plain} {value} to {result}")
    else:
        value = "poison"
        for slot, word in enumerate(returned):
            value = f.emit(f"insertvalue {result} {value}, i{word.bits} {word.name}, {slot}")
    parameters = ", ".join(f"{t} %p{i}" for i, t in enumerate(helper.parameters))
    head = f'define hidden {result} @"{name}"({parameters}) {ATTRIBUTES} {{'
    return "\n".join([head, "entry:", *f.lines, f"  ret {result} {value}", "}"]) + "\n"


_TYPES = {"float": 32, "double": 64, "half": 16, "bfloat": 16}
_FLOATS = {"f": (F32, "float"), "": (F64, "double")}
"""By the letter that C's functions end with."""


def _bits(type_: str) -> int:
    return _TYPES.get(type_) or int(type_[1:])


def _helpers(target: Target) -> dict[str, Helper]:
    if target.architecture == "arm":
        return _C | _eabi()
    return _C | _compiler()


# ── the C library ──


def _unary(operation: Callable[..., Word], *more: bool) -> Callable[[BinaryFormat], Make]:
    return lambda format_: lambda f, w: operation(format_, w[0], *more)


def _c() -> dict[str, Helper]:
    """Return functions of the C library; they take floats as the machine passes them."""
    helpers: dict[str, Helper] = {}
    ones = {
        "sqrt": _unary(softfloat.square_root),
        "trunc": _unary(softfloat.truncate),
        "floor": _unary(softfloat.round_away, True),
        "ceil": _unary(softfloat.round_away, False),
        "roundeven": _unary(softfloat.round_even),
        "rint": _unary(softfloat.round_even),
        "nearbyint": _unary(softfloat.round_even),
    }
    for letter, (format_, t) in _FLOATS.items():
        for name, make in ones.items():
            helpers[name + letter] = Helper(t, (t,), make(format_))
        helpers[f"fma{letter}"] = Helper(t, (t, t, t), _fused(format_))
        helpers[f"fmod{letter}"] = Helper(t, (t, t), _binary(softfloat.remainder, format_))
        for name, largest in (("fminimum", False), ("fmaximum", True)):
            helpers[name + letter] = Helper(t, (t, t), _extreme(format_, largest))
    return helpers


def _binary(operation: Callable[[BinaryFormat, Word, Word], Word], format_: BinaryFormat) -> Make:
    return lambda f, w: operation(format_, w[0], w[1])


def _fused(format_: BinaryFormat) -> Make:
    return lambda f, w: softfloat.fma(format_, w[0], w[1], w[2])


def _extreme(format_: BinaryFormat, largest: bool) -> Make:
    return lambda f, w: softfloat.extreme(format_, w[0], w[1], largest)


_C = _c()

# ── the compiler's runtime ──


def _between(a: BinaryFormat, b: BinaryFormat) -> Make:
    return lambda f, w: softfloat.to_format(a, b, w[0].wide(a.bits))


def _float(format_: BinaryFormat, signed: bool) -> Make:
    return lambda f, w: softfloat.from_integer(format_, w[0], signed)


def _integer(format_: BinaryFormat, bits: int, signed: bool) -> Make:
    return lambda f, w: softfloat.to_integer(format_, w[0], bits, signed)


def _compiler() -> dict[str, Helper]:
    """Return what LLVM calls for short floats on machines that know f32 and f64, and for i128."""
    return {
        "__ashlti3": Helper("i128", ("i128", "i32"), _shifted(True)),
        "__lshrti3": Helper("i128", ("i128", "i32"), _shifted(False)),
        "__multi3": Helper("i128", ("i128", "i128"), lambda f, w: _multiplied(*w)),
        "__extendhfsf2": Helper("float", ("half",), _between(F16, F32)),
        "__truncsfhf2": Helper("half", ("float",), _between(F32, F16)),
        "__truncdfhf2": Helper("half", ("double",), _between(F64, F16)),
        "__truncsfbf2": Helper("bfloat", ("float",), _between(F32, BF16)),
        "__truncdfbf2": Helper("bfloat", ("double",), _between(F64, BF16)),
    }


def _shifted(left: bool) -> Make:
    """Shift 128 bits by way of 64."""

    def make(f: Function, w: list[Word]) -> Word:
        low, high = w[0].wide(64), (w[0] >> 64).wide(64)
        by, far = (w[1] & 63).wide(64), w[1] >= 64
        if left:
            middle = high << by | low >> 1 >> (63 - by)
            low = low << by
            low, high = far.where(0, low), far.where(low, middle)
        else:
            middle = low >> by | high << 1 << (63 - by)
            high = high >> by
            low, high = far.where(high, middle), far.where(0, high)
        return high.wide(128) << 64 | low.wide(128)

    return make


def _multiplied(x: Word, y: Word) -> Word:
    """Return a product of 128 bits by way of 64."""
    (a, b), (c, d) = ((v.wide(64), (v >> 64).wide(64)) for v in (x, y))
    (a0, a1), (c0, c1) = ((v & 0xFFFFFFFF, v >> 32) for v in (a, c))
    low, first, second = a0 * c0, a0 * c1, a1 * c0
    middle = (low >> 32) + (first & 0xFFFFFFFF) + (second & 0xFFFFFFFF)
    high = a1 * c1 + (first >> 32) + (second >> 32) + (middle >> 32) + a * d + b * c
    low = low & 0xFFFFFFFF | middle << 32
    return high.wide(128) << 64 | low.wide(128)


def _eabi() -> dict[str, Helper]:
    """Return the runtime of Arm's EABI; it takes floats as integers of their size."""
    helpers: dict[str, Helper] = {}
    for letter, other, format_ in (("f", "d", F32), ("d", "f", F64)):
        t = f"i{format_.bits}"
        helpers[f"__aeabi_{letter}add"] = Helper(t, (t, t), _binary(softfloat.add, format_))
        helpers[f"__aeabi_{letter}sub"] = Helper(t, (t, t), _binary(_minus, format_))
        helpers[f"__aeabi_{letter}mul"] = Helper(t, (t, t), _binary(softfloat.multiply, format_))
        helpers[f"__aeabi_{letter}div"] = Helper(t, (t, t), _binary(softfloat.divide, format_))
        for op in ("eq", "lt", "le", "ge", "gt", "un"):
            helpers[f"__aeabi_{letter}cmp{op}"] = Helper("i32", (t, t), _compared(format_, op))
        for name, bits, signed in (("i", 32, True), ("ui", 32, False), ("l", 64, True),
                                   ("ul", 64, False)):  # fmt: skip
            whole = f"i{bits}"
            helpers[f"__aeabi_{name}2{letter}"] = Helper(t, (whole,), _float(format_, signed))
            z = {"i": "iz", "ui": "uiz", "l": "lz", "ul": "ulz"}[name]
            helpers[f"__aeabi_{letter}2{z}"] = Helper(whole, (t,), _integer(format_, bits, signed))
        wanted = F64 if format_ is F32 else F32
        helpers[f"__aeabi_{letter}2{other}"] = Helper(
            f"i{wanted.bits}", (t,), _between(format_, wanted)
        )
    for name in ("__aeabi_h2f", "__gnu_h2f_ieee"):
        helpers[name] = Helper("i32", ("i32",), _between(F16, F32))
    for name in ("__aeabi_f2h", "__gnu_f2h_ieee"):
        helpers[name] = Helper("i32", ("i32",), _short(F32, F16))
    for bits, prefix in ((32, "i"), (64, "l")):
        whole, both = f"i{bits}", f"{{ i{bits}, i{bits} }}"
        for u, signed in (("", True), ("u", False)):
            helpers[f"__aeabi_{u}{prefix}divmod"] = Helper(both, (whole, whole), _divided(signed))
        if bits == 32:
            helpers["__aeabi_idiv"] = Helper(whole, (whole, whole), _quotient(True))
            helpers["__aeabi_uidiv"] = Helper(whole, (whole, whole), _quotient(False))
    helpers["__aeabi_d2h"] = Helper("i32", ("i64",), _short(F64, F16))
    helpers["__truncsfbf2"] = Helper("i32", ("i32",), _short(F32, BF16))
    helpers["__truncdfbf2"] = Helper("i32", ("i64",), _short(F64, BF16))
    return helpers


def _minus(format_: BinaryFormat, x: Word, y: Word) -> Word:
    return softfloat.add(format_, x, softfloat.negated(format_, y))


def _compared(format_: BinaryFormat, op: str) -> Make:
    return lambda f, w: softfloat.compare(format_, op, w[0], w[1]).wide(32)


def _short(a: BinaryFormat, b: BinaryFormat) -> Make:
    return lambda f, w: softfloat.to_format(a, b, w[0]).wide(32)


def _divided(signed: bool) -> Make:
    return lambda f, w: divide(w[0], w[1], signed)


def _quotient(signed: bool) -> Make:
    return lambda f, w: divide(w[0], w[1], signed)[0]
