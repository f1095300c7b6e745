"""Keeping clear of a mistake in LLVM 22 (llvm-project#179489): masked stores of one known lane.

For AVX-512 a vector of integers that is truncated and stored under a mask becomes a truncating
store.  If it is then found that the mask is constant and holds one lane, the *wide* integer of that
lane is stored, past the end of what there is.  Masks may become constant as late as instructions
are chosen, so truncation and store are kept apart from the beginning: by assembly of no
instructions, which LLVM does not look into.
"""

from __future__ import annotations

import re

from alpenglow.ir.target import Target

_STORE = re.compile(
    r"^(?P<call> *call void @llvm\.masked\.store\.v(?P<lanes>\d+)i(?P<bits>8|16|32)\.p0\("
    r"<\d+ x i\d+>) (?P<value>%[^ ,]+),",
    re.MULTILINE,
)
_REGISTER = 128
"""Bits of the least vector that a register holds."""


def apart(ir_text: str, target: Target) -> str:
    """Return a module that does the same, without stores under masks that may truncate."""
    if not target.has("avx512f"):
        return ir_text
    count = 0

    def opaque(m: re.Match[str]) -> str:
        nonlocal count
        count += 1
        lanes, bits = int(m["lanes"]), int(m["bits"])
        name, value = f"%apart.{count}", m["value"]
        assert lanes * bits <= 4 * _REGISTER, f"{lanes} lanes of i{bits} are in no register"
        whole = max(lanes, _REGISTER // bits)
        kind, wide = f"<{lanes} x i{bits}>", f"<{whole} x i{bits}>"
        lines = []
        if whole > lanes:
            order = [f"i32 {i}" if i < lanes else "i32 poison" for i in range(whole)]
            lines.append(f"  {name}.wide = shufflevector {kind} {value}, {kind} poison, "
                         f"<{whole} x i32> <{', '.join(order)}>")  # fmt: skip
            value = f"{name}.wide"
        result = f"{name}.kept" if whole > lanes else name
        lines.append(f'  {result} = call {wide} asm "", "=v,0"({wide} {value})')
        if whole > lanes:
            order = [f"i32 {i}" for i in range(lanes)]
            lines.append(f"  {name} = shufflevector {wide} {result}, {wide} poison, "
                         f"<{lanes} x i32> <{', '.join(order)}>")  # fmt: skip
        return "\n".join([*lines, f"{m['call']} {name},"])

    return _STORE.sub(opaque, ir_text)
