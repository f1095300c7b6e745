"""What processors lack of the kernel language, and kernels without it.

Where there are no instructions that convert short floats, LLVM calls functions of a compiler's
runtime, or for bf16 in WebAssembly ends the process.  So it is given none.  Nor is LLVM given bf16
for x86-64: AVX512-BF16 and AVX-NE-CONVERT round denormal numbers to 0, whatever the mode.
"""

from __future__ import annotations

from collections.abc import Mapping

from alpenglow.ir.target import Target
from alpenglow.ir.types import HALVES
from alpenglow.kernel.legalise import Lacks, legalise
from alpenglow.kernel.stmt import Kernel

_CONVERTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "x86-64": {"f16": ("f16c",)},
    "arm": {"f16": ("fp16", "vfp4", "vfp4d16sp", "fp-armv8d16sp")},
    "riscv64": {"f16": ("zfh", "zfhmin")},
}
"""Features with which machines convert a type exactly; those of AArch64 always do."""


def lacks(target: Target) -> Lacks:
    """Return what the processor of `target` lacks."""
    # Vectors of f64 take the place of calls, and of divisions that take ten cycles each.
    remainders = target.facts.vector > 0 and target.architecture != "arm"
    quotients = target.architecture == "x86-64"
    if target.architecture == "aarch64":
        return Lacks(remainders=remainders)
    known = _CONVERTS.get(target.architecture, {})
    converts = {t for t, features in known.items() if any(map(target.has, features))}
    return Lacks(halves=HALVES - converts, quotients=quotients, remainders=remainders)


def legal(kernel: Kernel, target: Target) -> Kernel:
    """Return a kernel that does the same by what `target` has: the one to be rendered for it."""
    return legalise(kernel, lacks(target))
