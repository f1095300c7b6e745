"""The targets of LLVM that there is code for: this host, and levels of architectures by name.

A level is a named set of features that many machines share; what it implies is spelled out.  The
facts about a target follow from its triple and its features.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import llvmlite.binding as llvm

from alpenglow.base.errors import OptionError
from alpenglow.ir.target import Facts, Target, architecture, unknown


@dataclass(frozen=True)
class Level:
    """A named set of features that many machines of one architecture share."""

    triple: str
    cpu: str
    features: tuple[str, ...]


_V1 = ("cmov", "cx8", "fxsr", "mmx", "sse", "sse2")
_V2 = (*_V1, "crc32", "cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")

# The triple holds where the host is of another architecture; else the host's own is taken.
LEVELS = {
    "x86-64": Level("x86_64-unknown-linux-gnu", "x86-64", _V1),
    "x86-64-v2": Level("x86_64-unknown-linux-gnu", "x86-64-v2", _V2),
    "x86-64-v3": Level("x86_64-unknown-linux-gnu", "x86-64-v3", _V3),
    "x86-64-v4": Level("x86_64-unknown-linux-gnu", "x86-64-v4", _V4),
    "aarch64": Level("aarch64-unknown-linux-gnu", "generic", ("fp-armv8", "neon")),
    "armv7-a": Level("armv7a-unknown-linux-gnueabihf", "generic", ("neon",)),
    "cortex-m4": Level("thumbv7em-none-unknown-eabihf", "cortex-m4", ("vfp4d16sp",)),
    "cortex-m4-soft": Level("thumbv7em-none-unknown-eabi", "cortex-m4", ("soft-float",)),
    "cortex-m7": Level("thumbv7em-none-unknown-eabihf", "cortex-m7", ("fp-armv8d16sp",)),
    "cortex-m7-soft": Level("thumbv7em-none-unknown-eabi", "cortex-m7", ("soft-float",)),
    "cortex-m33": Level("thumbv8m.main-none-unknown-eabihf", "cortex-m33", ("fp-armv8d16sp",)),
    "cortex-m33-soft": Level("thumbv8m.main-none-unknown-eabi", "cortex-m33", ("soft-float",)),
    "riscv64": Level("riscv64-unknown-linux-gnu", "generic-rv64", ("a", "c", "d", "f", "m")),
    "wasm32": Level("wasm32-unknown-unknown", "generic", ("simd128",)),
}

# LLVM only prints a complaint about a feature that it does not know, so they are listed.
_X86_EXTRAS = (
    "amx-bf16 amx-int8 amx-tile avx avx2 avx512bf16 avx512bitalg avx512bw avx512cd avx512dq "
    "avx512f avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq "
    "avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 f16c fma gfni lzcnt movbe "
    "popcnt sse3 ssse3 sse4.1 sse4.2 vaes vpclmulqdq"
)
EXTRAS = {
    "x86-64": tuple(_X86_EXTRAS.split()),
    "aarch64": ("bf16", "crc", "dotprod", "fp16fml", "fullfp16", "i8mm", "lse", "sve", "sve2"),
    "arm": ("bf16", "dotprod", "fp16", "fullfp16", "i8mm", "vfp4"),
    "riscv64": ("v", "zba", "zbb", "zfh", "zihintpause", "zvfh"),
    "wasm32": ("atomics", "bulk-memory", "nontrapping-fptoint", "relaxed-simd", "sign-ext"),
}

_IMPLIED = {
    "avx512f": ("avx2", "f16c", "fma"),
    "avx512bf16": ("avx512bw",),
    "avx512bitalg": ("avx512bw",),
    "avx512fp16": ("avx512bw", "avx512dq", "avx512vl"),
    "avx512vbmi": ("avx512bw",),
    "avx512vbmi2": ("avx512bw",),
    "avx2": ("avx",),
    "avx": ("sse4.2",),
    "f16c": ("avx",),
    "fma": ("avx",),
    "avxifma": ("avx2",),
    "avxneconvert": ("avx2",),
    "avxvnni": ("avx2",),
    "avxvnniint16": ("avx2",),
    "avxvnniint8": ("avx2",),
    "vaes": ("avx2",),
    "vpclmulqdq": ("avx",),
    "sse4.2": ("crc32", "sse4.1"),
    "sse4.1": ("ssse3",),
    "ssse3": ("sse3",),
    "amx-bf16": ("amx-tile",),
    "amx-int8": ("amx-tile",),
    "sve2": ("sve",),
    "sve": ("fullfp16",),
    "zvfh": ("v",),
}

SLOW_PAIRS = ("sapphirerapids", "emeraldrapids")
"""Processors, of one core, that multiply half as many bf16 in a second, by vdpbf16ps, as f32:
86 GFLOP/s beside 178 on an Emerald Rapids.  Others of Intel's have not been measured."""

MACHINE = "cpu"
"""The name of the machine whose targets these are."""


def target(name: str, features: tuple[str, ...]) -> Target | None:
    """Return the host if `name` is "cpu", or a level with features; None for other names."""
    if name == "cpu":
        if features:
            raise OptionError(
                f"target '{'+'.join([name, *features])}': '{name}' takes no features",
                hint=f"'{name}' alone, or a level with features: {', '.join(LEVELS)}",
            )
        return host()
    return _at_level(name, features) if name in LEVELS else None


def runs_here(target: Target) -> bool:
    """Return whether this host is of the target's architecture and has all of its features."""
    here = host()
    if (target.architecture, target.os) != (here.architecture, here.os):
        return False
    return {f for f in target.features if f.startswith("+")} <= set(here.features)


def facts_of(triple: str, features: tuple[str, ...]) -> Facts:
    """Return what is known of the machines that a triple and signed features describe.

    Sizes of caches are those of machines that are common today, not of the one at hand: code for a
    target is the same wherever it is made.
    """

    def has(feature: str) -> bool:
        return f"+{feature}" in features

    family = architecture(triple)
    small = triple.startswith("thumb")
    wide = has("avx512f")
    # Bytes go through vpmaddwd where there is nothing better.
    bytes_ = family == "x86-64" or has("i8mm") or has("dotprod")
    multiplies = ["f32", *(["bf16"] if has("avx512bf16") else []), *(["u8"] if bytes_ else [])]
    lanes = 16 if wide else 8 if has("avx") or has("avx2") else 4
    return Facts(
        lanes=lanes,
        vector=4 * lanes if _has_vectors(family, has) else 0,
        masks=wide,
        # A microcontroller has 32 of one f32 each.
        registers=8 if small else 32 if wide or family in ("aarch64", "riscv64") else 16,
        fuses=_fuses(family, has),
        memory_operands=wide,
        lookup=wide,
        multiplies=tuple(multiplies),
        line=0 if small else 64,
        way=0 if small else 4096,
        own_cache=0 if small else 1 << 20,
        cache=0 if small else 8 << 20,
    )


def _has_vectors(family: str, has: Callable[[str], bool]) -> bool:
    """Return whether there are vector registers; without them LLVM makes scalars of vectors."""
    match family:
        case "arm":
            return has("neon")
        case "riscv64":
            return has("v")
    return family in ("x86-64", "aarch64", "wasm32")


def _fuses(family: str, has: Callable[[str], bool]) -> bool:
    """Return whether there is an instruction that multiplies and adds f32, rounding once."""
    match family:
        case "x86-64":
            return has("fma") or has("avx512f")
        case "arm":
            return any(map(has, ("vfp4", "vfp4d16sp", "fp-armv8", "fp-armv8d16sp")))
        case "riscv64":
            return has("f")
    return family == "aarch64"


def _at_level(name: str, extras: tuple[str, ...]) -> Target:
    """Return the target of a level, with the features `extras` and what they imply."""
    level = LEVELS[name]
    family = architecture(level.triple)
    for extra in extras:
        if extra not in EXTRAS[family]:
            raise unknown(f"feature of {family}", extra, EXTRAS[family])
    here = llvm.get_process_triple()
    triple = here if architecture(here) == family else level.triple
    named = "+".join([name, *sorted(set(extras) - set(level.features))])
    features = _signed(_closure((*level.features, *extras)))
    return Target(named, MACHINE, facts_of(triple, features), triple, level.cpu, features)


@functools.cache
def host() -> Target:
    """Return the machine that this process runs on.

    Of some machines LLVM reports no features but knows them by the processor's name; what every
    machine of the architecture has is added.
    """
    triple = llvm.get_process_triple()
    detected = llvm.get_host_cpu_features()
    family = architecture(triple)
    base = LEVELS[family].features if family in LEVELS else ()
    features = _signed({*base, *(name for name, on in detected.items() if on)})
    absent = (f"-{name}" for name, on in detected.items() if not on and name not in base)
    signed = tuple(sorted({*features, *absent}))
    cpu = llvm.get_host_cpu_name()
    facts = facts_of(triple, signed)
    if cpu in SLOW_PAIRS and "bf16" in facts.multiplies:
        facts = replace(facts, slower=("bf16",))
    return Target("cpu", MACHINE, facts, triple, cpu, signed)


def _signed(features: Iterable[str]) -> tuple[str, ...]:
    """Return the features with their signs, in order.

    Where there is AVX-512, LLVM's habit of keeping to 256 bits on some processors is switched
    off: kernels are written for the widest vector.
    """
    present = {f"+{feature}" for feature in features}
    return tuple(sorted(present | ({"-prefer-256-bit"} if "+avx512f" in present else set())))


def _closure(features: Iterable[str]) -> set[str]:
    """Return the features and all that they imply."""
    known: set[str] = set()
    waiting = list(features)
    while waiting:
        feature = waiting.pop()
        if feature not in known:
            known.add(feature)
            # Every part of AVX-512 stands on its foundation.
            foundation = ("avx512f",) if feature.startswith("avx512") else ()
            waiting += [*_IMPLIED.get(feature, ()), *foundation]
    return known
