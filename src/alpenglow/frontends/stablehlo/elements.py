"""Element types of MLIR by their names in graphs, and constants in files."""

from __future__ import annotations

import json
import re
from math import prod
from typing import Any

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.base.memory import MOST_NBYTES
from alpenglow.frontends.stablehlo.module import Tensor, splat
from alpenglow.ir.types import COMPLEX, DTYPES, NARROW_FLOATS, NARROW_INTS, PARTS, Array, width

ELEMENTS = {
    "i1": "bool", "index": "i64",
    **{f"i{n}": f"i{n}" for n in (2, 4, 8, 16, 32, 64)},
    **{f"si{n}": f"i{n}" for n in (2, 4, 8, 16, 32, 64)},
    **{f"ui{n}": f"u{n}" for n in (2, 4, 8, 16, 32, 64)},
    "f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64",
    "f8E4M3FN": "f8e4m3fn", "f8E4M3FNUZ": "f8e4m3fnuz", "f8E5M2": "f8e5m2",
    "f8E5M2FNUZ": "f8e5m2fnuz", "f8E8M0FNU": "f8e8m0", "f6E2M3FN": "f6e2m3",
    "f6E3M2FN": "f6e3m2", "f4E2M1FN": "f4e2m1",
}  # fmt: skip
"""Names of element types, and what we call them; there are others, which we have not."""

OTHERS = frozenset({"f8E3M4", "f8E4M3", "f8E4M3B11FNUZ", "tf32", "f80", "f128"})
"""Element types that there are, and that no graph holds."""

INTEGER = re.compile(r"[su]?i[0-9]{1,4}")

_NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)"
_HEX = re.compile(r"-?0x[0-9a-fA-F]+")
_LIST = re.compile(rf"[\s\[\],()\"]|-?0x[0-9a-fA-F]+|{_NUMBER}|true|false")


def element_type(name: str) -> str | None:
    """Return the name that an element type goes by, None if there is no such type."""
    if name in ELEMENTS:
        return ELEMENTS[name]
    return name if name in OTHERS or INTEGER.fullmatch(name) else None


def complex_of(part: str) -> str | None:
    """Return the complex type that has such parts."""
    return next((c for c, p in PARTS.items() if p == part), None)


def element(what: str, t: Tensor) -> str:
    """Return the dtype of a tensor in a graph: of quantized elements, the dtype of the integers."""
    return supported(what, t.dtype if isinstance(t.dtype, str) else t.dtype.storage)


def supported(what: str, dtype: str) -> str:
    """Return a dtype; raise UnsupportedError if a graph cannot hold its elements."""
    if dtype not in DTYPES:
        known = ", ".join(DTYPES)
        raise UnsupportedError(f"{what}: dtype {dtype} is not supported; supported: {known}")
    return dtype


def held(t: Tensor) -> np.dtype[Any]:
    """Return how NumPy holds the elements of a constant; raise UnsupportedError if it does not."""
    return DTYPES[element("a constant", t)]


def extents(t: Tensor) -> tuple[int, ...]:
    """Return the shape of a constant; raise ModelError if it is dynamic, or too large."""
    if t.shape is None or None in t.shape:
        raise ModelError(f"a constant is {t}, expected a static shape")
    shape = tuple(d for d in t.shape if d is not None)
    if prod(max(d, 1) for d in shape) * held(t).itemsize > MOST_NBYTES:
        raise ModelError(f"a constant is {t}, expected at most {MOST_NBYTES} bytes")
    return shape


def from_bytes(content: bytes, t: Tensor) -> Array:
    """Return a constant from its bytes, little-endian: all elements, or one for all.

    Bits are packed, the lowest first, as are elements of four and two bits.  Raises ModelError if
    there are too few bytes, or too many.
    """
    shape, dtype = extents(t), held(t)
    count, size = prod(shape), dtype.itemsize
    if dtype == np.bool_:
        return _bits(content, shape, t)
    if len(content) == size * count:
        return np.frombuffer(content, dtype).reshape(shape)
    if len(content) == size:
        return splat(np.frombuffer(content, dtype)[0], dtype, shape)
    raise ModelError(
        f"a constant of {t} has {len(content)} bytes, expected {size * count}, or {size} "
        "to repeat one element"
    )


def _bits(content: bytes, shape: tuple[int, ...], t: Tensor) -> Array:
    count = prod(shape)
    if len(content) == 1 and (content[0] in (0, 0xFF) or (count > 8 and content[0] == 1)):
        return splat(content[0] != 0, np.dtype(np.bool_), shape)
    packed = (count + 7) // 8
    if len(content) == packed:
        bits = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")
        return bits[:count].astype(np.bool_).reshape(shape)
    if len(content) == count:
        return np.frombuffer(content, np.uint8).astype(np.bool_).reshape(shape)
    raise ModelError(f"a constant of {t} has {len(content)} bytes, expected {packed} or {count}")


def from_text(text: str, t: Tensor) -> Array:
    """Return a constant from the text in ``dense<…>``: one number, or lists of numbers.

    Raises ModelError if the text is something else, or does not fit the type.
    """
    shape, dtype = extents(t), held(t)
    text = text.strip()
    if not text:
        if prod(shape):
            raise ModelError(f"a constant of {t} has no elements, expected {prod(shape)}")
        return np.empty(shape, dtype)
    numbers, found = _listed(text, t)
    is_complex = t.dtype in COMPLEX
    if is_complex:
        if found[-1:] != (2,):
            raise ModelError(f"a constant of {t} has single numbers, expected complex pairs")
        found = found[:-1]
    if found and found != shape:
        raise ModelError(f"a constant of {t} has lists of shape {found}, expected {shape}")
    flat = [_number(n, t) for n in numbers]
    if is_complex:
        array = _rounded(flat, DTYPES[PARTS[str(t.dtype)]]).view(dtype)
    else:
        array = _rounded(flat, dtype)
    return array.reshape(shape) if found else splat(array[0], dtype, shape)


def _rounded(numbers: list[Any], dtype: np.dtype[Any]) -> Array:
    """Return numbers as elements of a type; floats that it does not hold become infinite."""
    with np.errstate(all="ignore"):
        return np.array(numbers, dtype)


def _listed(text: str, t: Tensor) -> tuple[list[Any], tuple[int, ...]]:
    """Return the numbers of nested lists, and the shape of these."""
    if _LIST.sub("", text):
        raise ModelError(f"a constant of {t} is {text[:40]!r}, expected lists of numbers")
    opened = re.match(r"[\[\s]*", text)
    depth = opened[0].count("[") if opened else 0
    if depth > (rank := len(t.shape or ())):
        raise ModelError(f"a constant of {t} has lists {depth} deep, expected at most {rank}")
    plain = text.replace("(", "[").replace(")", "]")
    plain = re.sub(r"([0-9])\.(?![0-9])", r"\1.0", plain)
    plain = _HEX.sub(lambda m: f'"{m[0]}"', plain)
    try:
        nested = json.loads(plain)
        shape, flat = _flat(nested)
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"a constant of {t} is {text[:40]!r}, expected lists of numbers"
        ) from error
    return flat, shape


def _flat(nested: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Return the shape of nested lists and what is in them; raise ValueError if they are uneven."""
    shape: list[int] = []
    level = [nested]
    while level and any(isinstance(n, list) for n in level):
        lengths = {len(n) if isinstance(n, list) else -1 for n in level}
        if len(lengths) != 1:
            raise ValueError("lists have different lengths, expected one")
        shape.append(lengths.pop())
        level = [element for n in level for element in n]
    return tuple(shape), level


def _number(n: Any, t: Tensor) -> Any:
    """Return an element as NumPy takes it; raise ModelError if the type holds no such number."""
    dtype = str(t.dtype) if isinstance(t.dtype, str) else t.dtype.storage
    part = PARTS.get(dtype, dtype)
    floating = DTYPES[part].kind == "f" or part in NARROW_FLOATS or part == "bf16"
    if isinstance(n, str):
        bits = int(n, 16)
        if floating:
            if not 0 <= bits < 1 << DTYPES[part].itemsize * 8:
                raise _misfit(t, n, f"an unsigned number of {DTYPES[part].itemsize * 8} bits")
            return np.array(bits, f"u{DTYPES[part].itemsize}").view(DTYPES[part])[()]
        n = bits
    if floating:
        if isinstance(n, bool):
            raise _misfit(t, n, "a number")
        return float(n)
    if part == "bool":
        if n not in (0, 1, -1):
            raise _misfit(t, n, "true or false")
        return bool(n)
    if isinstance(n, bool) or not isinstance(n, int):
        raise _misfit(t, n, "an integer")
    return _integer(n, part, t)


def _integer(n: int, dtype: str, t: Tensor) -> int:
    """Return an integer; one of a signed type may be written as its bits, without a sign."""
    bits = int(dtype[1]) if dtype in NARROW_INTS else width(dtype)
    unsigned = dtype.startswith("u")
    low, high = 0 if unsigned else -(1 << bits - 1), (1 << bits) - 1
    if not low <= n <= high:
        raise _misfit(t, n, f"{low} to {high}")
    return n - (1 << bits) if not unsigned and n >= 1 << bits - 1 else n


def _misfit(t: Tensor, n: Any, expected: str) -> ModelError:
    """Return the error for an element that the dtype of its constant cannot hold."""
    found = str(n).lower() if isinstance(n, bool) else n
    return ModelError(f"an element of {t} is {found}, expected {expected}")
