"""A target: the machine that code is made for, as a triple, a processor and a list of features.

Everything that the compiler chooses by machine (vector width, tile sizes, instructions) it reads
from here, so code for any target can be made, and looked at, on any host.  The name of a target
parses back to it: `Target.parse("x86-64-v4+avx512vnni")`.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable
from dataclasses import dataclass

import llvmlite.binding as llvm

from alpenglow.base.errors import OptionError
from alpenglow.base.extensions import brought, entries


@dataclass(frozen=True)
class Target:
    """The machine that code is made for.

    `features` are written as LLVM takes them, each with its sign and in order: `+avx2`,
    `-prefer-256-bit`.  What a level of an architecture implies is spelled out.
    """

    triple: str
    cpu: str
    features: tuple[str, ...]
    name: str

    @staticmethod
    def parse(text: str) -> Target:
        """Return the target that `text` names.

        "cpu" is this host, "interpreter" runs plain NumPy; otherwise a level of an architecture
        (`LEVELS`), with any number of its `EXTRAS` behind it: "x86-64-v4+avx512vnni"; or a name
        that another distribution brings (entry point group ``alpenglow.targets``).
        """
        name, *extras = text.strip().lower().split("+")
        if name not in ("cpu", "interpreter", *LEVELS):
            return _brought(text, name, extras)
        if name not in LEVELS and extras:
            raise OptionError(
                f"target '{text}': '{name}' takes no features",
                hint=f"'{name}' alone, or a level with features: {', '.join(LEVELS)}",
            )
        if name == "interpreter":
            return Target("", "", (), "interpreter")
        if name == "cpu":
            return _host()
        return _at_level(name, extras)

    @property
    def architecture(self) -> str:
        """The family of instruction sets: x86-64, aarch64, arm, riscv64, wasm32; "" for none."""
        return _architecture(self.triple)

    @property
    def os(self) -> str:
        """The operating system as LLVM names it, without a version: linux, macosx, windows …"""
        system = llvm.get_triple_parts(self.triple).OS if self.triple else ""
        return "macosx" if system == "darwin" else str(system)

    @property
    def lanes(self) -> int:
        """How many f32 the widest vector holds."""
        if self.has("avx512f"):
            return 16
        return 8 if self.has("avx") or self.has("avx2") else 4

    @property
    def registers(self) -> int:
        """How many vector registers there are."""
        if self.triple.startswith("thumb"):
            return 8  # 32 of one f32 each
        return 32 if self.has("avx512f") or self.architecture in ("aarch64", "riscv64") else 16

    @property
    def fuses(self) -> bool:
        """Whether there is an instruction that multiplies and adds f32, rounding once."""
        match self.architecture:
            case "x86-64":
                return self.has("fma") or self.has("avx512f")
            case "arm":
                return any(map(self.has, ("vfp4", "vfp4d16sp", "fp-armv8", "fp-armv8d16sp")))
            case "riscv64":
                return self.has("f")
        return self.architecture == "aarch64"

    def has(self, feature: str) -> bool:
        """Say if the processor has `feature`, named as LLVM names it, without a sign."""
        return f"+{feature}" in self.features

    def is_host_compatible(self) -> bool:
        """Say if code for this target can run in this process."""
        if self.name == "interpreter":
            return True
        host = _host()
        if (self.architecture, self.os) != (host.architecture, host.os):
            return False
        return {f for f in self.features if f.startswith("+")} <= set(host.features)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        if not self.triple:
            return f"Target({self.name})"
        return f"Target({self.name}: {self.cpu}, {self.triple}, vectors of {self.lanes} f32)"


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


def _brought(text: str, name: str, extras: list[str]) -> Target:
    """Return a target that another distribution brings."""
    if name not in entries("alpenglow.targets"):
        known = ("cpu", "interpreter", *LEVELS, *entries("alpenglow.targets"))
        raise _unknown("target", text, known)
    target = brought("alpenglow.targets")[name](*extras)
    assert isinstance(target, Target) and target.name.split("+")[0] == name, (
        f"the target brought as '{name}' is {target!r}"
    )
    return target


def _at_level(name: str, extras: list[str]) -> Target:
    """Return the target of a level, with the features `extras` and what they imply."""
    level = LEVELS[name]
    architecture = _architecture(level.triple)
    for extra in extras:
        if extra not in EXTRAS[architecture]:
            raise _unknown(f"feature of {architecture}", extra, EXTRAS[architecture])
    host = llvm.get_process_triple()
    return Target(
        triple=host if _architecture(host) == architecture else level.triple,
        cpu=level.cpu,
        features=_signed(_closure((*level.features, *extras))),
        name="+".join([name, *sorted(set(extras) - set(level.features))]),
    )


@functools.cache
def _host() -> Target:
    """Return the machine that this process runs on.

    Of some machines LLVM reports no features but knows them by the processor's name; what every
    machine of the architecture has is added.
    """
    triple = llvm.get_process_triple()
    detected = llvm.get_host_cpu_features()
    architecture = _architecture(triple)
    base = LEVELS[architecture].features if architecture in LEVELS else ()
    features = _signed({*base, *(name for name, on in detected.items() if on)})
    absent = (f"-{name}" for name, on in detected.items() if not on and name not in base)
    return Target(triple, llvm.get_host_cpu_name(), tuple(sorted({*features, *absent})), "cpu")


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


def _architecture(triple: str) -> str:
    first = triple.split("-", 1)[0]
    if first in ("x86_64", "amd64"):
        return "x86-64"
    if first.startswith(("aarch64", "arm64")):
        return "aarch64"
    return "arm" if first.startswith(("arm", "thumb")) else first


def _unknown(what: str, text: str, known: Iterable[str]) -> OptionError:
    names = tuple(known)
    close = difflib.get_close_matches(text.strip().lower(), names, n=3, cutoff=0.5)
    return OptionError(
        f"'{text}' is not a known {what}; known are: {', '.join(names)}",
        hint=" or ".join(f"'{name}'" for name in close),
    )
