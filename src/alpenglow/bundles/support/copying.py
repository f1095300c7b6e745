"""Copying and filling memory, for bundles that stand alone: memcpy, memset, memmove.

Whole words where the addresses are even, single bytes elsewhere: some machines fault on others.
"""

from __future__ import annotations

from alpenglow.ir.target import Target

ATTRIBUTES = 'nounwind noinline "no-builtins"'
"""Without builtins LLVM does not find in a copying loop the very function that it defines."""


def copying(name: str, target: Target) -> str | None:
    """Return a module that defines the function `name`; None if it copies nothing."""
    text = _TEXTS.get(name)
    if text is None:
        return None
    narrow = target.architecture in ("arm", "wasm32")
    size, unit = ("i32", 4) if narrow else ("i64", 8)
    spelling = {
        "ATTRIBUTES": ATTRIBUTES,
        "UNIT": f"i{8 * unit}",
        "MASK": str(unit - 1),
        "LOG": str(unit.bit_length() - 1),
        "BYTES": str(unit),
        "ONES": str(int.from_bytes(b"\x01" * unit, "little")),
        "SIZE": size,
    }
    for word, meaning in spelling.items():
        text = text.replace(word, meaning)
    return text


def _loop(label: str, first: str, limit: str, after: str, body: str, before: str) -> str:
    """Return a loop from `first` to `limit`, which is larger; the number is %LABEL."""
    return f"""
{label}:
  %{label}.i = phi SIZE [{first}, %{before}], [%{label}.next, %{label}]
{body.strip(chr(10))}
  %{label}.next = add SIZE %{label}.i, 1
  %{label}.more = icmp ult SIZE %{label}.next, {limit}
  br i1 %{label}.more, label %{label}, label %{after}"""


_WHOLE = """
  %low = and SIZE %address, MASK
  %even = icmp eq SIZE %low, 0
  %words = lshr SIZE %count, LOG
  %whole = select i1 %even, SIZE %words, SIZE 0
  %none = icmp eq SIZE %whole, 0
  br i1 %none, label %rest, label %long"""

_REST = """
rest:
  %first = shl SIZE %whole, LOG
  %some = icmp ult SIZE %first, %count
  br i1 %some, label %short, label %end"""

_MEMCPY = (
    """
define hidden ptr @memcpy(ptr noalias %to, ptr noalias readonly %from, SIZE %count) ATTRIBUTES {
entry:
  %a = ptrtoint ptr %to to SIZE
  %b = ptrtoint ptr %from to SIZE
  %address = or SIZE %a, %b"""
    + _WHOLE
    + _loop(
        "long", "0", "%whole", "rest", """
  %from.word = getelementptr UNIT, ptr %from, SIZE %long.i
  %to.word = getelementptr UNIT, ptr %to, SIZE %long.i
  %word = load UNIT, ptr %from.word, align BYTES
  store UNIT %word, ptr %to.word, align BYTES""", "entry",
    )
    + _REST
    + _loop(
        "short", "%first", "%count", "end", """
  %from.byte = getelementptr i8, ptr %from, SIZE %short.i
  %to.byte = getelementptr i8, ptr %to, SIZE %short.i
  %byte = load i8, ptr %from.byte
  store i8 %byte, ptr %to.byte""", "rest",
    )
    + """
end:
  ret ptr %to
}
"""
)  # fmt: skip

_MEMSET = (
    """
define hidden ptr @memset(ptr %to, i32 %value, SIZE %count) ATTRIBUTES {
entry:
  %byte = trunc i32 %value to i8
  %wide = zext i8 %byte to UNIT
  %word = mul UNIT %wide, ONES
  %address = ptrtoint ptr %to to SIZE"""
    + _WHOLE
    + _loop(
        "long", "0", "%whole", "rest", """
  %to.word = getelementptr UNIT, ptr %to, SIZE %long.i
  store UNIT %word, ptr %to.word, align BYTES""", "entry",
    )
    + _REST
    + _loop(
        "short", "%first", "%count", "end", """
  %to.byte = getelementptr i8, ptr %to, SIZE %short.i
  store i8 %byte, ptr %to.byte""", "rest",
    )
    + """
end:
  ret ptr %to
}
"""
)  # fmt: skip

_MEMMOVE = (
    """
define hidden ptr @memmove(ptr %to, ptr %from, SIZE %count) ATTRIBUTES {
entry:
  %none = icmp eq SIZE %count, 0
  br i1 %none, label %end, label %some
some:
  %a = ptrtoint ptr %to to SIZE
  %b = ptrtoint ptr %from to SIZE
  %below = icmp ult SIZE %a, %b
  br i1 %below, label %up, label %down"""
    + _loop(
        "up", "0", "%count", "end", """
  %up.from = getelementptr i8, ptr %from, SIZE %up.i
  %up.to = getelementptr i8, ptr %to, SIZE %up.i
  %up.byte = load i8, ptr %up.from
  store i8 %up.byte, ptr %up.to""", "some",
    )
    + _loop(
        "down", "0", "%count", "end", """
  %down.past = sub SIZE %count, %down.i
  %down.at = sub SIZE %down.past, 1
  %down.from = getelementptr i8, ptr %from, SIZE %down.at
  %down.to = getelementptr i8, ptr %to, SIZE %down.at
  %down.byte = load i8, ptr %down.from
  store i8 %down.byte, ptr %down.to""", "some",
    )
    + """
end:
  ret ptr %to
}
"""
)  # fmt: skip


def _eabi() -> dict[str, str]:
    """Return the names that Arm's EABI has for the same."""
    wrappers: dict[str, str] = {}
    for size in ("", "4", "8"):
        for name in ("memcpy", "memmove"):
            wrappers[f"__aeabi_{name}{size}"] = f"""
declare ptr @{name}(ptr, ptr, SIZE)
define hidden void @__aeabi_{name}{size}(ptr %to, ptr %from, SIZE %count) ATTRIBUTES {{
  call ptr @{name}(ptr %to, ptr %from, SIZE %count)
  ret void
}}
"""
        wrappers[f"__aeabi_memset{size}"] = f"""
declare ptr @memset(ptr, i32, SIZE)
define hidden void @__aeabi_memset{size}(ptr %to, SIZE %count, i32 %value) ATTRIBUTES {{
  call ptr @memset(ptr %to, i32 %value, SIZE %count)
  ret void
}}
"""
        wrappers[f"__aeabi_memclr{size}"] = f"""
declare ptr @memset(ptr, i32, SIZE)
define hidden void @__aeabi_memclr{size}(ptr %to, SIZE %count) ATTRIBUTES {{
  call ptr @memset(ptr %to, i32 0, SIZE %count)
  ret void
}}
"""
    return wrappers


def _clearing(name: str) -> str:
    """Return what macOS calls to fill memory with zeros."""
    return f"""
declare ptr @memset(ptr, i32, SIZE)
define hidden void @{name}(ptr %to, SIZE %count) ATTRIBUTES {{
  call ptr @memset(ptr %to, i32 0, SIZE %count)
  ret void
}}
"""


_TEXTS = {
    "memcpy": _MEMCPY,
    "memset": _MEMSET,
    "memmove": _MEMMOVE,
    **{name: _clearing(name) for name in ("bzero", "__bzero")},
    **_eabi(),
}
