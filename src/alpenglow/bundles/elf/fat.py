"""Objects for several levels of x86-64: entry points that ask the processor what it has.

`NAME_choose` finds the best of the alternatives that the processor and the operating system allow
and returns its address, null if there is none; `NAME` chooses and calls.  Nothing is kept from one
call to the next, so programs for which some instructions CPUID take too long (virtual machines
emulate it) choose once and call what they got.

CPUID is an instruction that LLVM has no name for, and its assembler is not there for every machine
on every host, so the function that executes it is written as the bytes that it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from alpenglow.base.errors import OptionError
from alpenglow.bundles.entry_state import NO_MACHINE
from alpenglow.bundles.plan import Routine, Variant
from alpenglow.ir.target import Target

_WORDS = ("1.ecx", "1.edx", "7.ebx", "7.ecx", "7.edx", "7.1.eax", "7.1.edx", "80000001.ecx")
_BITS = {
    "1.ecx": {
        "sse3": 0, "ssse3": 9, "fma": 12, "cx16": 13, "sse4.1": 19, "sse4.2": 20, "crc32": 20,
        "movbe": 22, "popcnt": 23, "xsave": 26, "avx": 28, "f16c": 29,
    },
    "1.edx": {"cx8": 8, "cmov": 15, "mmx": 23, "fxsr": 24, "sse": 25, "sse2": 26},
    "7.ebx": {
        "bmi": 3, "avx2": 5, "bmi2": 8, "avx512f": 16, "avx512dq": 17, "avx512ifma": 21,
        "avx512cd": 28, "avx512bw": 30, "avx512vl": 31,
    },
    "7.ecx": {
        "avx512vbmi": 1, "avx512vbmi2": 6, "gfni": 8, "vaes": 9, "vpclmulqdq": 10,
        "avx512vnni": 11, "avx512bitalg": 12, "avx512vpopcntdq": 14,
    },
    "7.edx": {"avx512fp16": 23},
    "7.1.eax": {"avxvnni": 4, "avx512bf16": 5, "avxifma": 23},
    "7.1.edx": {"avxvnniint8": 4, "avxneconvert": 5, "avxvnniint16": 10},
    "80000001.ecx": {"sahf": 0, "lzcnt": 5},
}  # fmt: skip
"""Where CPUID tells of a feature: leaf, register and bit."""

_WIDE, _WIDEST = 0x06, 0xE6
"""What the operating system keeps of registers (XCR0), if it lets programs use AVX, AVX-512."""

_OSXSAVE = 27


def require_fat(targets: Sequence[Target]) -> None:
    """Raise OptionError if no object can choose among `targets` as it runs."""
    listed = ",".join(map(str, targets))
    for target in targets:
        unknown = sorted(f for f in target.features if f[0] == "+" and _place(f[1:]) is None)
        if target.architecture != "x86-64" or target.name == "cpu" or unknown:
            raise OptionError(
                f"target '{listed}': an object chooses among levels of x86-64 as it runs, and "
                f"'{target}' is not supported there",
                hint="target='x86-64-v2,x86-64-v3,x86-64-v4+avx512vnni'",
                flags="--target x86-64-v2,x86-64-v3,x86-64-v4+avx512vnni",
            )
    for less, more in itertools.pairwise(targets):
        if set(less.features) >= set(more.features) or less.triple != more.triple:
            raise OptionError(
                f"target '{listed}': '{more}' has no more than '{less}' before it, so it would "
                "never be chosen",
                hint="name levels from the least to the best",
            )


def alternatives(routine: Routine) -> list[Routine]:
    """Return a routine for each target that an entry point chooses from, or it alone."""
    if not routine.choices:
        return [routine]
    return [
        replace(routine, entry=f"{routine.entry}.level{k}", branches=choice.branches, choices=())
        for k, choice in enumerate(routine.choices)
    ]


def dispatch(routine: Routine, api: str) -> Iterator[str]:
    """Define an entry point that chooses, and the function that chooses."""
    entry = routine.entry
    names = ["constants", "mutable", "scratch"] + (["parallel"] if api == "dynamic" else [])
    arguments = ", ".join(f"ptr %{n}" for n in names)
    choices = [r.entry for r in alternatives(routine)]
    yield f'define i32 @"{entry}"({arguments}) {_PLAIN} {{'
    yield f'  %best = call ptr @"{entry}_choose"()'
    yield "  %none = icmp eq ptr %best, null"
    yield "  br i1 %none, label %refuse, label %run"
    yield from ("refuse:", f"  ret i32 {NO_MACHINE}", "run:")
    yield f"  %done = call i32 %best({arguments})"
    yield from ("  ret i32 %done", "}")
    yield f'define ptr @"{entry}_choose"() {_PLAIN} {{'
    yield "  %level = call i32 @alpenglow_level()"
    cases = " ".join(f"i32 {k}, label %level{k}" for k in range(len(choices)))
    yield f"  switch i32 %level, label %none [{cases}]"
    for k, name in enumerate(choices):
        yield from (f"level{k}:", f'  ret ptr @"{name}"')
    yield from ("none:", "  ret ptr null", "}")


def level(choices: Sequence[Variant]) -> Iterator[str]:
    """Define the function that returns the number of the best level here, or -1."""
    yield from _HEAD
    number = "-1"
    for k, choice in enumerate(choices):
        tests = []
        for word, mask in _masks(choice.target).items():
            at = _WORDS.index(word) if word in _WORDS else len(_WORDS)
            yield f"  %m{k}.{at} = and i32 %w{at}, {mask}"
            yield f"  %t{k}.{at} = icmp eq i32 %m{k}.{at}, {mask}"
            tests.append(f"%t{k}.{at}")
        fits = "true"
        for j, test in enumerate(tests):
            yield f"  %f{k}.{j} = and i1 {fits}, {test}"
            fits = f"%f{k}.{j}"
        yield f"  %n{k} = select i1 {fits}, i32 {k}, i32 {number}"
        number = f"%n{k}"
    yield from (f"  ret i32 {number}", "}", *_CPUID, *_XGETBV)


def _masks(target: Target) -> dict[str, int]:
    """Return the bits that must be set in each word for a target."""
    masks: dict[str, int] = {}
    for feature in target.features:
        place = _place(feature[1:]) if feature[0] == "+" else None
        if place is not None:
            masks[place[0]] = masks.get(place[0], 0) | 1 << place[1]
    if target.has("avx"):
        masks["xcr0"] = _WIDEST if target.has("avx512f") else _WIDE
    return masks


def _place(feature: str) -> tuple[str, int] | None:
    return next(((word, bits[feature]) for word, bits in _BITS.items() if feature in bits), None)


_PLAIN = 'nounwind "target-cpu"="x86-64" "target-features"=""'
"""These functions run before anything is known of the machine."""


def _asked(number: int, leaf: int, sub: int) -> tuple[str, ...]:
    return (
        f"  call x86_64_sysvcc void @alpenglow_cpuid(i32 {leaf}, i32 {sub}, ptr %out)",
        *(f"  %r{number}.{i} = load i32, ptr %p{i}" for i in range(4)),
    )


_HEAD = (
    f"define internal i32 @alpenglow_level() noinline {_PLAIN} {{",
    "entry:",
    "  %out = alloca [4 x i32], align 16",
    *(f"  %p{i} = getelementptr i32, ptr %out, i64 {i}" for i in range(4)),
    *_asked(0, 0, 0),
    "  %has.7 = icmp uge i32 %r0.0, 7",
    *_asked(1, 1, 0),
    "  %w0 = or i32 %r1.2, 0",
    "  %w1 = or i32 %r1.3, 0",
    *_asked(2, 7, 0),
    *(f"  %w{i + 1} = select i1 %has.7, i32 %r2.{i}, i32 0" for i in (1, 2, 3)),
    "  %subs = select i1 %has.7, i32 %r2.0, i32 0",
    "  %has.7.1 = icmp uge i32 %subs, 1",
    *_asked(3, 7, 1),
    "  %w5 = select i1 %has.7.1, i32 %r3.0, i32 0",
    "  %w6 = select i1 %has.7.1, i32 %r3.3, i32 0",
    *_asked(4, 0x80000000, 0),
    f"  %has.more = icmp uge i32 %r4.0, {0x80000001}",
    *_asked(5, 0x80000001, 0),
    "  %w7 = select i1 %has.more, i32 %r5.2, i32 0",
    f"  %os = and i32 %r1.2, {1 << _OSXSAVE}",
    "  %kept = icmp ne i32 %os, 0",
    "  br i1 %kept, label %ask, label %known",
    "ask:",
    "  %xcr0 = call i32 @alpenglow_xcr0()",
    "  br label %known",
    "known:",
    "  %w8 = phi i32 [%xcr0, %ask], [0, %entry]",
)
"""Asks for all words; leaves that a processor does not have say nothing."""

_CODE = bytes.fromhex(
    "4989d9"  # mov r9, rbx
    "4989d0"  # mov r8, rdx
    "89f8"  # mov eax, edi
    "89f1"  # mov ecx, esi
    "0fa2"  # cpuid
    "418900"  # mov [r8], eax
    "41895804"  # mov [r8 + 4], ebx
    "41894808"  # mov [r8 + 8], ecx
    "4189500c"  # mov [r8 + 12], edx
    "4c89cb"  # mov rbx, r9
)
_CPUID = (
    "define internal x86_64_sysvcc void @alpenglow_cpuid(i32 %leaf, i32 %sub, ptr %out) noinline "
    f"{_PLAIN} prologue [{len(_CODE)} x i8] "
    'c"' + "".join(f"\\{b:02X}" for b in _CODE) + '" {',
    "  ret void",
    "}",
)
"""cpuid(leaf, sub, out); what stands before its body runs first."""

_XGETBV = (
    "declare i64 @llvm.x86.xgetbv(i32)",
    'define internal i32 @alpenglow_xcr0() noinline nounwind "target-features"="+xsave" {',
    "  %all = call i64 @llvm.x86.xgetbv(i32 0)",
    "  %low = trunc i64 %all to i32",
    "  ret i32 %low",
    "}",
)
