"""Attributes and types of VHLO, as bytecode holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from alpenglow.base.errors import AlpenglowError, UnsupportedError
from alpenglow.frontends.stablehlo.bytecode.bytecode import Container, Entry
from alpenglow.frontends.stablehlo.bytecode.bytes_reader import Bytes
from alpenglow.frontends.stablehlo.bytecode.vhlo_table import NEWEST
from alpenglow.frontends.stablehlo.elements import complex_of, from_bytes
from alpenglow.frontends.stablehlo.module import (
    DEEPEST,
    Quantized,
    Record,
    Scalar,
    Signature,
    Tensor,
    Token,
    Tuple,
    Type,
)
from alpenglow.ir.types import DTYPES, NARROW_INTS

OPEN = -(1 << 63)
"""A dynamic dimension."""

SCALARS: Mapping[int, str] = {
    0: "bool", 2: "bf16", 3: "f16", 4: "f32", 5: "f64", 6: "f8e4m3fn", 7: "f8e5m2", 9: "i64",
    10: "i4", 11: "i8", 12: "i16", 13: "i32", 14: "i64", 15: "u4", 16: "u8", 17: "u16", 18: "u32",
    19: "u64", 27: "f8e4m3fnuz", 28: "f8e5m2fnuz", 29: "f8E4M3B11FNUZ", 31: "i2", 32: "u2",
    34: "tf32", 35: "f8E4M3", 36: "f8E3M4", 37: "f4e2m1", 38: "f6e2m3", 39: "f6e3m2", 40: "f8e8m0",
}  # fmt: skip
"""Types of elements by their codes."""

CHOICES: Mapping[int, tuple[str, ...]] = {
    3: ("EQ", "NE", "GE", "GT", "LE", "LT"),
    4: ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"),
    7: ("FFT", "IFFT", "RFFT", "IRFFT"),
    11: ("DEFAULT", "HIGH", "HIGHEST"),
    12: ("DEFAULT", "THREE_FRY", "PHILOX"),
    13: ("", "UNIFORM", "NORMAL"),
    16: ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    19: ("DEFAULT", "HIGHEST", "TOLERANCE"),
}
"""Attributes that are choices, by their codes."""

VERSION = f"StableHLO_v{NEWEST}"

PORTABLE = f"stablehlo-translate --serialize --target={NEWEST}"
"""The hint for bytecode that is not portable, or too new."""

Made = TypeVar("Made")


class Vhlo:
    """Reads attributes and types by number, each once."""

    def __init__(self, container: Container) -> None:
        self.file = container
        self._attributes: dict[int, Any] = {}
        self._types: dict[int, Any] = {}
        self._depth = 0

    def attribute(self, number: int, here: Bytes) -> Any:
        """Return an attribute by number."""
        return self._once(self._attributes, self.file.attributes, number, here, self._attribute)

    def type(self, number: int, here: Bytes) -> Any:
        """Return a type by number."""
        return self._once(self._types, self.file.types, number, here, self._type)

    def _once(
        self, known: dict[int, Any], entries: list[Entry], number: int, here: Bytes,
        reading: Callable[[Bytes], Any],
    ) -> Any:  # fmt: skip
        if number in known:
            return known[number]
        here.index("attribute or type", number, len(entries))
        self._depth += 1
        if self._depth > DEEPEST:
            raise here.error(f"attributes are nested too deeply, expected at most {DEEPEST} levels")
        entry = entries[number]
        x = self.file.part(entry.span, "an attribute or type")
        if entry.dialect == "builtin":
            known[number] = self._builtin(x, entry) if reading == self._attribute else None
        elif entry.dialect != "vhlo" and reading == self._attribute:
            known[number] = Record(entry.dialect)  # only an operation that reads it needs it
        elif entry.dialect != "vhlo" or not entry.custom:
            form = "binary" if entry.custom else "text"
            raise UnsupportedError(
                f"offset {x.at}: an attribute or type of dialect '{entry.dialect}' in {form} form "
                "is not supported; supported: vhlo in binary form",
                hint=PORTABLE,
            )
        else:
            known[number] = reading(x)
        self._depth -= 1
        return known[number]

    def _builtin(self, x: Bytes, entry: Entry) -> Any:
        """Return one of the few attributes that are not VHLO's: strings, lists of names, places."""
        if not entry.custom:
            return None
        code = x.number()
        if code == 1:
            pairs = [(x.number(), x.number()) for _ in range(x.count())]
            return {str(self.attribute(n, x)): self.attribute(v, x) for n, v in pairs}
        if code == 2:
            return self.file.string(x.number(), x)
        if code == 14:
            return Record("loc", (("name", self.attribute(x.number(), x)),))
        return None

    # ── attributes ──

    def _attribute(self, x: Bytes) -> Any:
        code = x.number()
        if code in CHOICES:
            return self._choice(x, CHOICES[code])
        reading = _ATTRIBUTES.get(code)
        if reading is None:
            raise x.error(f"attribute code is {code}, expected one of {VERSION}", PORTABLE)
        return reading(self, x)

    def _choice(self, x: Bytes, choices: tuple[str, ...]) -> str:
        return choices[x.index("enum case", x.number(), len(choices))]

    def _list(self, x: Bytes, reading: Callable[[], Made]) -> tuple[Made, ...]:
        return tuple(reading() for _ in range(x.count()))

    def _array(self, x: Bytes) -> Any:
        return self._list(x, lambda: self.attribute(x.number(), x))

    def _bool(self, x: Bytes) -> Any:
        return bool(x.number())

    def _dictionary(self, x: Bytes) -> Any:
        pairs = self._list(x, lambda: (x.number(), x.number()))
        return {str(self.attribute(n, x)): self.attribute(v, x) for n, v in pairs}

    def _element(self, x: Bytes) -> str:
        t = self.type(x.number(), x)
        if not isinstance(t, Scalar):
            raise x.error(f"an element type is {t}, expected a scalar")
        return t.dtype

    def _float(self, x: Bytes) -> Any:
        dtype = self._element(x)
        if dtype not in DTYPES or dtype in NARROW_INTS:
            raise UnsupportedError(
                f"offset {x.at}: a float attribute of type {dtype} is not supported; "
                "supported: floats of 4 to 64 bits"
            )
        width = DTYPES[dtype].itemsize
        raw = x.bits(width * 8).to_bytes(width, "little")
        return float(np.frombuffer(raw, DTYPES[dtype])[0])

    def _double(self, x: Bytes) -> float:
        return float(np.frombuffer(x.bits(64).to_bytes(8, "little"), np.float64)[0])

    def _integer(self, x: Bytes) -> Any:
        dtype = self._element(x)
        if dtype not in DTYPES:
            raise x.error(f"an integer attribute is of type {dtype}, expected 2 to 64 bits")
        width = int(dtype[1]) if dtype in NARROW_INTS else DTYPES[dtype].itemsize * 8
        n = x.bits(width)
        return n - (1 << width) if dtype.startswith("i") and n >> (width - 1) else n

    def _alias(self, x: Bytes) -> Any:
        outputs = self._list(x, x.signed)
        operand = x.signed()
        return Record("output_operand_alias", (
            ("output_tuple_indices", outputs), ("operand_index", operand),
            ("operand_tuple_indices", self._list(x, x.signed)),
        ))  # fmt: skip

    def _string(self, x: Bytes) -> Any:
        return self.file.string(x.number(), x)

    def _tensor(self, x: Bytes) -> Any:
        """Return a constant; where its type is held in no array, its bytes do not matter either."""
        t = self.type(x.number(), x)
        if not isinstance(t, Tensor):
            raise x.error(f"a constant is of type {t}, expected a tensor")
        span = x.take(x.number())
        try:
            return from_bytes(self.file.content[span.start : span.end], t)
        except AlpenglowError as error:
            raise type(error)(f"offset {span.start}: {error.message}") from None

    def _of_type(self, x: Bytes) -> Any:
        return self.type(x.number(), x)

    def _bounds(self, x: Bytes) -> Any:
        bounds = tuple(None if n == OPEN else n for n in self._list(x, x.signed))
        return Record("type_extensions", (("bounds", bounds),))

    def _accuracy(self, x: Bytes) -> Any:
        atol, rtol, ulps = self._double(x), self._double(x), x.signed()
        mode = self.attribute(x.number(), x)
        fields = (("atol", atol), ("rtol", rtol), ("ulps", ulps), ("mode", mode))
        return Record("result_accuracy", fields)

    def _skipped(self, x: Bytes) -> Any:
        return Record("mesh")

    # ── types ──

    def _type(self, x: Bytes) -> Type:
        code = x.number()
        if code in SCALARS:
            return Scalar(SCALARS[code])
        reading = _TYPES.get(code)
        if reading is None:
            raise x.error(f"type code is {code}, expected one of {VERSION}", PORTABLE)
        made: Type = reading(self, x)
        return made

    def _complex(self, x: Bytes) -> Type:
        part = self._element(x)
        dtype = complex_of(part)
        if dtype is None:
            raise x.error(f"parts of complex numbers are {part}, expected f32 or f64")
        return Scalar(dtype)

    def types(self, x: Bytes) -> tuple[Type, ...]:
        return self._list(x, lambda: self.type(x.number(), x))

    def _function(self, x: Bytes) -> Type:
        inputs = self.types(x)
        return Signature(inputs, self.types(x))

    def _ranked(self, x: Bytes, encoded: bool = False) -> Type:
        bounds: tuple[int | None, ...] = ()
        if encoded:
            encoding = self.attribute(x.number(), x)
            if isinstance(encoding, Record):
                bounds = dict(encoding.fields).get("bounds", ())
        shape = self._list(x, x.signed)
        if any(d < 0 and d != OPEN for d in shape):
            raise x.error(f"a tensor has shape {shape}, expected entries of at least 0, or {OPEN}")
        extents = tuple(None if d == OPEN else d for d in shape)
        return Tensor(self._tensor_element(x), extents, bounds)

    def _encoded(self, x: Bytes) -> Type:
        return self._ranked(x, True)

    def _tensor_element(self, x: Bytes) -> str | Quantized:
        t = self.type(x.number(), x)
        if isinstance(t, Quantized):
            return t
        if not isinstance(t, Scalar):
            raise x.error(f"an element type is {t}, expected a scalar or a quantized type")
        return t.dtype

    def _unranked(self, x: Bytes) -> Type:
        return Tensor(self._tensor_element(x), None)

    def _token(self, x: Bytes) -> Type:
        return Token()

    def _tuple(self, x: Bytes) -> Type:
        return Tuple(self.types(x))

    def _quantized(self, x: Bytes) -> Any:
        x.number()
        storage, expressed = self._element(x), self._element(x)
        scale, zero, low, high = self._double(x), x.signed(), x.signed(), x.signed()
        return Quantized(storage, expressed, (scale,), (zero,), None, low, high)

    def _quantized_axis(self, x: Bytes) -> Any:
        x.number()
        storage, expressed = self._element(x), self._element(x)
        axis, low, high = x.number(), x.signed(), x.signed()
        scales = self._list(x, lambda: self._double(x))
        return Quantized(storage, expressed, scales, self._list(x, x.signed), axis, low, high)


_ATTRIBUTES: Mapping[int, Callable[[Vhlo, Bytes], Any]] = {
    1: Vhlo._array, 2: Vhlo._bool, 5: lambda _, x: x.number(), 6: Vhlo._dictionary,
    8: Vhlo._float, 9: Vhlo._integer, 10: Vhlo._alias, 14: Vhlo._string, 15: Vhlo._tensor,
    17: Vhlo._of_type, 18: Vhlo._bounds, 20: Vhlo._accuracy, 21: Vhlo._skipped, 22: Vhlo._skipped,
    23: Vhlo._skipped, 24: Vhlo._skipped, 25: Vhlo._skipped,
}  # fmt: skip
_TYPES: Mapping[int, Callable[[Vhlo, Bytes], Any]] = {
    1: Vhlo._complex, 8: Vhlo._function, 20: Vhlo._ranked, 21: Vhlo._encoded, 22: Vhlo._token,
    23: Vhlo._tuple, 24: Vhlo._quantized, 25: Vhlo._unranked, 26: Vhlo._token,
    30: Vhlo._quantized_axis, 33: Vhlo._token, 42: Vhlo._tuple,
}  # fmt: skip
