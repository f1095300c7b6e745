"""A target: the machine that code is made for, and the facts about it that the compiler asks for.

Everything that is chosen by machine (vector width, tile sizes, what stays in a cache) is read from
here, so code for any target can be made, and looked at, on any host.  Targets are described by the
machine that makes code for them (`machines.api`); the name of a target parses back to it:
`Target.parse("x86-64-v4+avx512vnni")`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from alpenglow.base.errors import OptionError
from alpenglow.base.extensions import brought

GPUS = (
    "gpu", "cuda", "nvidia", "nvptx", "amd", "amdgpu", "rocm", "hip", "metal", "mps", "vulkan",
    "directml", "webgpu", "xpu", "sycl",
)  # fmt: skip
"""Names of GPUs, and of interfaces to them, that other software takes for a device."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a machine is like, as far as passes, loop forms and templates ask.

    Sizes are in bytes, and 0 where there is nothing of the kind: a microcontroller has no caches.
    """

    lanes: int = 1
    """How many f32 the widest vector holds."""

    vector: int = 0
    """How many bytes the widest vector holds, where narrower elements than f32 may fill it."""

    masks: bool = False
    """Whether an instruction loads or stores some lanes of a vector as fast as all of them."""

    registers: int = 16
    """How many vector registers there are."""

    fuses: bool = False
    """Whether an instruction multiplies and adds f32, rounding once."""

    memory_operands: bool = False
    """Whether it takes a number from memory and puts it in all lanes, too."""

    lookup: bool = False
    """Whether an instruction looks up a vector of 16 f32 in a table of 16."""

    multiplies: tuple[str, ...] = ("f32",)
    """The element types that its multiply-adds take in, those of several neighbours included."""

    slower: tuple[str, ...] = ()
    """Those of them of which it multiplies fewer in a second than of f32."""

    line: int = 0
    """A cache line."""

    way: int = 0
    """What lies so far apart falls into the same set of the first-level cache."""

    own_cache: int = 0
    """The cache of one core: an operand that is larger comes from farther away."""

    cache: int = 0
    """What a layer may read and write before its results have left all caches."""

    scratch: int = 1 << 17
    """What a kernel may take of the stack for sums."""

    serial: int = 8192
    """Elements of an instruction below which it is not worth waking other threads for."""

    units: int = 1
    """How many cores kernels are cut into parts for, where that is not known as they run."""

    group: int = 0
    """How many threads of a grid are one group, as far as kernels choose; 0 where there is none."""

    subgroup: int = 1
    """How many threads run in step and can read each other's registers; 1 where none do."""

    tiles: tuple[tuple[str, int, int, int], ...] = ()
    """Products of small matrices that are one instruction: element type, rows, columns, inner."""

    @property
    def burst(self) -> int:
        """Bytes that memory hands over at once: a cache line, or 64 where there is no cache."""
        return self.line or 64

    def lanes_for(self, dtype: str) -> int:
        """Return how many sums of products of elements of `dtype` the widest vector holds."""
        return max(1, self.lanes // 2) if dtype == "f64" else self.lanes


class _Machine(Protocol):
    """What a target asks of the machine that described it."""

    name: str

    @property
    def targets(self) -> tuple[str, ...]: ...
    def target(self, name: str, features: tuple[str, ...]) -> Target | None: ...
    def runs_here(self, target: Target) -> bool: ...


@dataclass(frozen=True, slots=True)
class Target:
    """Describe the machine for which code is compiled.

    Args:
        name: the name, which `parse` reads.
        machine: the name of the backend (*machine*) that generates the code.
        facts: the properties of the machine: vector width, registers, caches.
        triple: the target triple of LLVM; "" if LLVM does not generate the code.
        cpu: the processor as LLVM names it.
        features: the features as LLVM takes them, each with its sign, in order: `+avx2`,
            `-prefer-256-bit`.

    Example:
        >>> target = ag.Target.parse("x86-64-v4+avx512vnni")
        >>> target.architecture, target.has("avx512vnni")
        ('x86-64', True)
    """

    name: str
    machine: str
    facts: Facts = field(default=Facts(), repr=False)
    triple: str = ""
    cpu: str = ""
    features: tuple[str, ...] = ()

    @staticmethod
    def parse(text: str) -> Target:
        """Return the target of a name.

        Args:
            text: "cpu" for this processor, "interpreter" for NumPy, an architecture level with
                features like "x86-64-v4+avx512vnni", or a name that an installed extension adds
                (entry point group ``alpenglow.machines``).

        Returns:
            The target.

        Raises:
            OptionError: if no backend knows the name; it lists similar names.
        """
        if not isinstance(text, str):
            raise OptionError(f"target is {text!r}, expected a name", hint="'cpu'")
        name, *features = text.strip().lower().split("+")
        machines = list(_machines())
        for machine in machines:
            target = machine.target(name, tuple(features))
            if target is not None:
                assert target.machine == machine.name and target.name.split("+")[0] == name, (
                    f"the target that machine {machine.name} calls '{name}' is {target!r}"
                )
                return target
        error = unknown("target", text, [n for machine in machines for n in machine.targets])
        if name.partition(":")[0] in GPUS:
            error.hint = (
                "'opencl:0', or 'opencl:NAME', for a GPU that `alpenglow devices` lists; "
                "CUDA, ROCm, Metal and Vulkan are not supported"
            )
        raise error

    @property
    def architecture(self) -> str:
        """The instruction set family: x86-64, aarch64, arm, riscv64 or wasm32; "" for none."""
        return architecture(self.triple)

    @property
    def os(self) -> str:
        """The operating system as LLVM names it, without a version: linux, macosx or windows."""
        parts = self.triple.split("-")
        system = re.sub(r"[\d.]*$", "", parts[2]) if len(parts) > 2 else ""
        return "macosx" if system == "darwin" else system

    def has(self, feature: str) -> bool:
        """Return True if the processor has a feature.

        Args:
            feature: the name that LLVM uses, without a sign.

        Returns:
            True or False.
        """
        return f"+{feature}" in self.features

    def is_host_compatible(self) -> bool:
        """Return True if code for this target can run in this process.

        Returns:
            True or False.
        """
        return any(m.name == self.machine and m.runs_here(self) for m in _machines())

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        if not self.triple:
            return f"Target({self.name})"
        return f"Target({self.name}: {self.cpu}, {self.triple}, vectors of {self.facts.lanes} f32)"


def architecture(triple: str) -> str:
    """Return the family of instruction sets that a triple begins with."""
    first = triple.split("-", 1)[0]
    if first in ("x86_64", "amd64"):
        return "x86-64"
    if first.startswith(("aarch64", "arm64")):
        return "aarch64"
    return "arm" if first.startswith(("arm", "thumb")) else first


def unknown(what: str, text: str, known: Iterable[str]) -> OptionError:
    """Return the error about a name that is none of those known, with what it may have meant."""
    names = tuple(known)
    close = difflib.get_close_matches(text.strip().lower(), names, n=3, cutoff=0.5)
    return OptionError(
        f"'{text}' is not a known {what}; known are: {', '.join(names)}",
        hint=" or ".join(f"'{name}'" for name in close),
    )


def _machines() -> Iterator[_Machine]:
    yield from brought("alpenglow.machines").values()
