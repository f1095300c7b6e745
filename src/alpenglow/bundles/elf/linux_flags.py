"""What Linux calls the features of processors, in /proc/cpuinfo.

Code that is loaded into a running program looks there for what it was compiled for; LLVM has names
of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from alpenglow.ir.target import Target


def needed_flags(target: Target) -> list[str]:
    """Return what Linux calls the features that code for a target uses, in order."""
    names = _FLAGS[target.architecture]
    return sorted({linux for feature, linux in names.items() if target.has(feature)})


_ALIKE = (
    "avx avx2 avx512bw avx512cd avx512dq avx512f avx512ifma avx512vbmi avx512vl bmi2 f16c fma gfni "
    "movbe popcnt ssse3 vaes vpclmulqdq"
)
_FLAGS: Mapping[str, Mapping[str, str]] = {
    "x86-64": {
        **{name: name for name in _ALIKE.split()},
        **{f"avx512{x}": f"avx512_{x}" for x in ("bf16", "bitalg", "fp16", "vbmi2", "vnni")},
        "avx512vpopcntdq": "avx512_vpopcntdq",
        **{f"amx-{x}": f"amx_{x}" for x in ("bf16", "int8", "tile")},
        **{f"avx{x}": f"avx_{x}" for x in ("ifma", "vnni")},
        "avxneconvert": "avx_ne_convert",
        "avxvnniint16": "avx_vnni_int16",
        "avxvnniint8": "avx_vnni_int8",
        "bmi": "bmi1",
        "lzcnt": "abm",
        "sse3": "pni",
        "sse4.1": "sse4_1",
        "sse4.2": "sse4_2",
        "crc32": "sse4_2",
    },
    "aarch64": {
        **{name: name for name in ("bf16", "i8mm", "sve", "sve2")},
        "crc": "crc32",
        "dotprod": "asimddp",
        "fp16fml": "asimdfhm",
        "fullfp16": "asimdhp",
        "lse": "atomics",
    },
    "arm": {
        "neon": "neon",
        "vfp4": "vfpv4",
        "fp16": "vfpv4",
        "dotprod": "asimddp",
        "fullfp16": "asimdhp",
        "i8mm": "i8mm",
        "bf16": "asimdbf16",
    },
    "riscv64": {name: name for name in ("v", "zba", "zbb", "zfh", "zihintpause", "zvfh")},
}
"""By architecture and LLVM's name, without what the platform of a wheel promises already."""
