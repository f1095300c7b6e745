"""Keeping clear of a mistake in LLVM 22 (llvm-project#179489): masked stores of one known lane.

For AVX-512 a vector of integers that is truncated and stored under a mask becomes a truncating
store.  If it is then found that the mask is constant and holds one lane, the *wide* integer of that
lane is stored, past the end of what there is.  So these stores become plain ones before.
"""

from __future__ import annotations

import re

_STORE = re.compile(
    r"^ *(?:tail )?call void @llvm\.masked\.store\.v\d+(?P<scalar>i8|i16|i32)\.p0\("
    r"(?P<vector><\d+ x i\d+>) (?P<value>%[-\w.$]+), ptr (?:[a-z]+ )*?align (?P<align>\d+) "
    r"(?P<place>%[-\w.$]+), <\d+ x i1> <(?P<mask>[^>]*)>\)(?: #\d+)?(?P<notes>.*)$",
    re.MULTILINE,
)
_MASKED = re.compile(r"@llvm\.masked\.store\.v\d+i(?:8|16|32)\.")


def has_masked_stores(ir_text: str) -> bool:
    """Whether any integers are stored under masks."""
    return _MASKED.search(ir_text) is not None


def plain_stores(ir_text: str) -> str:
    """Return optimised IR with masked stores of a single integer turned into plain ones."""
    count = 0

    def plain(found: re.Match[str]) -> str:
        nonlocal count
        lanes = [lane.split()[-1] for lane in found["mask"].split(",")]
        if lanes.count("true") != 1 or lanes.count("false") != len(lanes) - 1:
            return found[0]
        count += 1
        at, scalar, name = lanes.index("true"), found["scalar"], f"%one.lane.{count}"
        width = int(scalar[1:]) // 8
        # What is known of the vector's alignment holds for the lane only if it is the first.
        align = width if at and int(found["align"]) > width else int(found["align"])
        return "\n".join(
            [
                f"  {name} = extractelement {found['vector']} {found['value']}, i64 {at}",
                f"  {name}.at = getelementptr i8, ptr {found['place']}, i64 {at * width}",
                f"  store {scalar} {name}, ptr {name}.at, align {align}{found['notes']}",
            ]
        )

    return _STORE.sub(plain, ir_text)
