"""What bundles bring along for machines without an instruction, checked against this machine's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from alpenglow.bundles.support.support import support
from alpenglow.ir.target import Target
from alpenglow.machines.cpu.assemble import assemble
from alpenglow.machines.cpu.jit import Code

Array = NDArray[Any]

KINDS: dict[str, tuple[Any, Any]] = {
    "f": (np.float32, ctypes.c_uint32),
    "d": (np.float64, ctypes.c_uint64),
}
COUNT = 4000


@cache
def function(
    name: str, result: Any, *parameters: Any, target: str = "cortex-m4-soft"
) -> Callable[..., Any]:
    """Return a function of the support, compiled for this machine."""
    text = support(name, Target.parse(target))
    assert text is not None
    renamed = text.replace("define hidden", "define").replace(f'@"{name}"', f'@"tested_{name}"')
    renamed = renamed.replace(f"@{name}(", f"@tested_{name}(")
    code = Code.install([assemble(renamed, Target.parse("cpu"))], [f"tested_{name}"])
    found = ctypes.CFUNCTYPE(result, *parameters)(code.address(f"tested_{name}"))
    found.code = code  # type: ignore[attr-defined]
    return found


def numbers(letter: str, seed: int) -> Array:
    """Return floats of all kinds: any bits, near each other, small integers, and the special."""
    dtype, _ = KINDS[letter]
    rng = np.random.default_rng(seed)
    bits = np.dtype(dtype).itemsize
    anything = rng.integers(0, 256, COUNT * bits, np.uint8).view(dtype)
    near = rng.normal(size=COUNT).astype(dtype)
    whole = rng.integers(-5, 6, COUNT).astype(dtype)
    info = np.finfo(dtype)
    special = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, info.max, info.tiny, info.smallest_subnormal, 1, -1,
         0.5, -0.5, 1.5, 2.5, -2.5],
        dtype,
    )  # fmt: skip
    found = np.concatenate([anything, near, whole, np.tile(special, 20)])
    return rng.permutation(found)


def bits(values: Array) -> list[int]:
    """Return the bits of floats, those of all NaNs alike."""
    plain = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
    return plain.view(f"u{values.dtype.itemsize}").tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("letter", ["f", "d"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_arithmetic_is_that_of_the_machine(op: str, letter: str) -> None:
    x, y = numbers(letter, 1), numbers(letter, 2)
    word = KINDS[letter][1]
    call = function(f"__aeabi_{letter}{op}", word, word, word)
    with np.errstate(all="ignore"):
        expected = {"add": x + y, "sub": x - y, "mul": x * y, "div": x / y}[op]
    found = [call(a, b) for a, b in zip(raw(x), raw(y), strict=True)]

    assert bits(np.array(found, f"u{x.itemsize}").view(x.dtype)) == bits(expected)


@pytest.mark.parametrize("name", ["__ashlti3", "__lshrti3", "__multi3"])
def test_wide_integers_are_those_of_python(name: str) -> None:
    """Called by way of 64 bits: C has no portable type of 128."""
    text = support(name, Target.parse("wasm32"))
    assert text is not None
    second = "i32" if name != "__multi3" else "i128"
    caller = f"""
define void @call(ptr %x, ptr %y, ptr %to) {{
  %a = load i128, ptr %x, align 8
  %b = load {second}, ptr %y, align 4
  %c = call i128 @"{name}"(i128 %a, {second} %b)
  store i128 %c, ptr %to, align 8
  ret void
}}
"""
    code = Code.install([assemble(text + caller, Target.parse("cpu"))], ["call"])
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_char_p] * 3)(code.address("call"))
    rng = np.random.default_rng(0)
    whole = 1 << 128
    for _ in range(300):
        x, y = (int.from_bytes(rng.bytes(16), "little") >> int(rng.integers(128)) for _ in "xy")
        if second == "i32":
            y %= 128
        to = ctypes.create_string_buffer(16)
        call(x.to_bytes(16, "little"), y.to_bytes(16, "little"), to)
        expected = {"__ashlti3": x << y if y < 128 else 0, "__lshrti3": x >> (y % 128),
                    "__multi3": x * y}[name] % whole  # fmt: skip

        assert int.from_bytes(to.raw, "little") == expected


def raw(values: Array) -> list[int]:
    return values.view(f"u{values.dtype.itemsize}").tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("letter", ["f", "d"])
@pytest.mark.parametrize("op", ["eq", "lt", "le", "ge", "gt", "un"])
def test_comparisons_are_those_of_the_machine(op: str, letter: str) -> None:
    x, y = numbers(letter, 3), numbers(letter, 4)
    word = KINDS[letter][1]
    call = function(f"__aeabi_{letter}cmp{op}", ctypes.c_int, word, word)
    expected = {
        "eq": x == y, "lt": x < y, "le": x <= y, "ge": x >= y, "gt": x > y,
        "un": np.isnan(x) | np.isnan(y),
    }[op]  # fmt: skip

    assert [call(a, b) for a, b in zip(raw(x), raw(y), strict=True)] == expected.tolist()


@pytest.mark.parametrize("letter", ["f", "d"])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sqrt", np.sqrt), ("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc),
        ("roundeven", np.rint),
    ],
)  # fmt: skip
def test_functions_of_one_number(name: str, expected: Any, letter: str) -> None:
    x = numbers(letter, 5)
    kind = ctypes.c_float if letter == "f" else ctypes.c_double
    call = function(name + ("f" if letter == "f" else ""), kind, kind)
    found = np.array([call(a) for a in x.tolist()], x.dtype)
    with np.errstate(all="ignore"):
        want = expected(x)

    assert bits(found) == bits(want)


@pytest.mark.parametrize("letter", ["f", "d"])
def test_remainders_are_exact(letter: str) -> None:
    x, y = numbers(letter, 6), numbers(letter, 7)
    kind = ctypes.c_float if letter == "f" else ctypes.c_double
    call = function("fmod" + ("f" if letter == "f" else ""), kind, kind, kind)
    found = np.array([call(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)], x.dtype)
    with np.errstate(all="ignore"):
        expected = np.fmod(x, y)

    assert bits(found) == bits(expected)


@pytest.mark.parametrize(
    ("letter", "target"), [("f", "cortex-m4-soft"), ("f", "wasm32"), ("d", "cortex-m4-soft")]
)
def test_a_fused_product_is_rounded_once(letter: str, target: str) -> None:
    x, y, z = (numbers(letter, seed) for seed in (8, 9, 10))
    kind = ctypes.c_float if letter == "f" else ctypes.c_double
    name = "fma" + ("f" if letter == "f" else "")
    call = function(name, kind, kind, kind, kind, target=target)
    # Sums that nearly cancel are where rounding twice shows.
    with np.errstate(all="ignore"):
        z[::2] = (-(x * y) * (1 + np.finfo(x.dtype).eps))[::2]
        plain = np.isfinite(x) & np.isfinite(y) & np.isfinite(z) & np.isfinite(x * y)
    x, y, z = x[plain], y[plain], z[plain]
    found = np.array(list(map(call, x.tolist(), y.tolist(), z.tolist())), x.dtype)
    exact = [Fraction(a) * Fraction(b) + Fraction(c)
             for a, b, c in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)]  # fmt: skip

    assert all(nearest(f, e) for f, e in zip(found, exact, strict=True))


def nearest(found: Any, exact: Fraction) -> bool:
    """Whether a float is one of those next to a number, and none is nearer."""
    if not np.isfinite(found):
        return bool(abs(exact) >= Fraction(float(np.finfo(found.dtype).max)))
    own = abs(Fraction(float(found)) - exact)
    with np.errstate(over="ignore"):
        beside = [np.nextafter(found, found.dtype.type(limit)) for limit in (np.inf, -np.inf)]
    return all(own <= abs(Fraction(float(b)) - exact) for b in beside if np.isfinite(b))


def test_products_that_are_not_finite() -> None:
    call = function("fmaf", *[ctypes.c_float] * 4)
    inf, nan = np.inf, np.nan
    cases = [(inf, 0, 1), (inf, 1, -inf), (inf, 1, 1), (1, 1, inf), (nan, 1, 1), (-inf, 2, 0)]

    assert bits(np.array([call(*c) for c in cases], np.float32)) == bits(
        np.array([nan, nan, inf, inf, nan, -inf], np.float32)
    )


@pytest.mark.parametrize("letter", ["f", "d"])
@pytest.mark.parametrize(
    ("name", "dtype"), [("i", np.int32), ("ui", np.uint32), ("l", np.int64), ("ul", np.uint64)]
)
def test_integers_and_back(name: str, dtype: Any, letter: str) -> None:
    rng = np.random.default_rng(11)
    size = np.dtype(dtype).itemsize
    x = rng.integers(0, 256, 1000 * size, np.uint8).view(dtype)
    x = np.concatenate([x >> dtype(7 * size), x, np.array([0, 1], dtype)])
    float_type, word = KINDS[letter]
    integer = ctypes.c_uint64 if size == 8 else ctypes.c_uint32
    there = function(f"__aeabi_{name}2{letter}", word, integer)
    z = {"i": "iz", "ui": "uiz", "l": "lz", "ul": "ulz"}[name]
    back = function(f"__aeabi_{letter}2{z}", integer, word)
    found = [there(v) for v in x.view(f"u{size}").tolist()]
    y = x.astype(float_type)
    fits = np.abs(y) < float(np.iinfo(dtype).max)
    returned = np.array([back(v) for v in raw(y[fits])], f"u{size}").view(dtype)

    assert found == raw(y)
    assert returned.tolist() == y[fits].astype(dtype).tolist()


@pytest.mark.parametrize(
    ("name", "source", "wanted"),
    [
        ("__aeabi_f2d", np.float32, np.float64), ("__aeabi_d2f", np.float64, np.float32),
        ("__aeabi_f2h", np.float32, np.float16), ("__aeabi_h2f", np.float16, np.float32),
        ("__aeabi_d2h", np.float64, np.float16), ("__truncsfbf2", np.float32, ml_dtypes.bfloat16),
    ],
)  # fmt: skip
def test_widths(name: str, source: Any, wanted: Any) -> None:
    with np.errstate(all="ignore"):
        x = numbers("d" if source is np.float64 else "f", 12).astype(source)
    given = ctypes.c_uint64 if x.itemsize == 8 else ctypes.c_uint32
    result = ctypes.c_uint64 if np.dtype(wanted).itemsize == 8 else ctypes.c_uint32
    call = function(name, result, given)
    with np.errstate(all="ignore"):
        expected = x.astype(wanted)
    found = np.array([call(v) for v in raw(x)], np.uint64).astype(f"u{expected.itemsize}")

    same = np.isnan(expected) & np.isnan(found.view(wanted))
    assert (same | (found == expected.view(found.dtype))).all()


@pytest.mark.parametrize("signed", [True, False])
def test_long_division(signed: bool) -> None:
    x, y = divisions(8, signed)

    class Both(ctypes.Structure):
        _fields_ = (("quotient", ctypes.c_uint64), ("rest", ctypes.c_uint64))

    call = function(f"__aeabi_{'' if signed else 'u'}ldivmod", Both, *[ctypes.c_uint64] * 2)
    made = [call(a, b) for a, b in zip(raw(x), raw(y), strict=True)]
    found = np.array([(m.quotient, m.rest) for m in made], np.uint64).view(x.dtype)
    quotients = [int(Fraction(a, b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    rests = [a - b * q for a, b, q in zip(x.tolist(), y.tolist(), quotients, strict=True)]

    assert found[:, 0].tolist() == quotients
    assert found[:, 1].tolist() == rests


@pytest.mark.parametrize("signed", [True, False])
def test_division(signed: bool) -> None:
    x, y = divisions(4, signed)
    call = function(f"__aeabi_{'' if signed else 'u'}idiv", *[ctypes.c_uint32] * 3)
    found = np.array([call(a, b) for a, b in zip(raw(x), raw(y), strict=True)], np.uint32)
    quotients = [int(Fraction(a, b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]

    assert found.view(x.dtype).tolist() == quotients


def divisions(nbytes: int, signed: bool) -> tuple[Array, Array]:
    """Return dividends and divisors of all lengths."""
    rng = np.random.default_rng(13)
    dtype = np.dtype(f"{'i' if signed else 'u'}{nbytes}")
    x, y = rng.integers(0, 256, (2, 2000 * nbytes), np.uint8).view(dtype)
    y >>= rng.integers(0, 8 * nbytes, 2000).astype(dtype)
    return x, np.where(y == 0, dtype.type(1), y)


@pytest.mark.parametrize("name", ["memcpy", "memmove"])
@pytest.mark.parametrize("shift", [0, 1, 8])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 65])
def test_copies(name: str, shift: int, count: int) -> None:
    call = function(name, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
    source, target = np.arange(100, dtype=np.uint8), np.zeros(100, np.uint8)
    call(target.ctypes.data + shift, source.ctypes.data + 2 * shift, count)
    expected = np.zeros(100, np.uint8)
    expected[shift : shift + count] = source[2 * shift : 2 * shift + count]

    assert target.tolist() == expected.tolist()


@pytest.mark.parametrize(("source", "target"), [(0, 3), (3, 0), (0, 16), (5, 5)])
def test_moves_within_an_array(source: int, target: int) -> None:
    call = function("memmove", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
    array = np.arange(100, dtype=np.uint8)
    expected = array.copy()
    expected[target : target + 50] = array[source : source + 50].copy()
    call(array.ctypes.data + target, array.ctypes.data + source, 50)

    assert array.tolist() == expected.tolist()


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("count", [0, 5, 64])
def test_filling(shift: int, count: int) -> None:
    call = function("memset", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)
    array, expected = np.zeros(100, np.uint8), np.zeros(100, np.uint8)
    call(array.ctypes.data + shift, 0x1A5, count)
    expected[shift : shift + count] = 0xA5

    assert array.tolist() == expected.tolist()
