"""OpenCL devices of this machine, and kernels run on them: Intel's CPU runtime, PoCL.

Neither is asked of anyone: `make test-kernels` installs what can be had.  Kernels are run by
pyopencl, so that a mistake of ours in driving a device is none in them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from typing import Any

import numpy as np
import pytest

from alpenglow.ir.types import Array
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.expr import Const, Expr
from alpenglow.kernel.legalise import Lacks
from alpenglow.kernel.stmt import Kernel
from alpenglow.machines.opencl.runtimes import prepared
from alpenglow.render.opencl.operations import NEWER
from alpenglow.render.opencl.render import LACKS, render
from kernel_cases import Case
from loop_kernels import same_bits

cl: Any = None
with suppress(ImportError):
    cl = importlib.import_module("pyopencl")

OPTIONS = ["-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt"]
NAMES = {"intel": "Intel(R) OpenCL", "pocl": "Portable Computing Language"}

TOGETHER = 50
"""How many kernels are built as one program."""


@dataclass
class Runtime:
    """A device of one platform, and a queue for it."""

    name: str
    context: Any
    queue: Any

    def run(
        self, program: Any, kernel: Kernel, operands: dict[str, Array], extents: Sequence[int]
    ) -> None:
        """Run a kernel of a program that has been built, in place on `operands`."""
        size = _size(kernel)
        if 0 in size[0]:
            return
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffers = {}
        for b in kernel.buffers:
            # No buffer may be empty.
            raw = np.concatenate([operands[b.name].view(np.uint8), np.zeros(16, np.uint8)])
            buffers[b.name] = cl.Buffer(self.context, flags, hostbuf=raw)
        function = cl.Kernel(program, kernel.name)
        function.set_args(*buffers.values(), *map(np.int64, extents))
        cl.enqueue_nd_range_kernel(self.queue, function, *size)
        for b in kernel.buffers:
            if b.mutable and operands[b.name].size:
                cl.enqueue_copy(self.queue, operands[b.name].view(np.uint8), buffers[b.name])

    def build(self, text: str) -> Any:
        newer = ["-cl-std=CL3.0"] if text.startswith(NEWER) else []
        return cl.Program(self.context, text).build([*OPTIONS, *newer])


def _size(kernel: Kernel) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many work items run, and in groups of how many.

    There is one for each iteration of a parallel loop, or for each thread of a grid.
    """
    loop = kernel.parallel
    if loop is not None:
        return (_number(loop.extent),), (1,)
    groups, threads = (tuple(map(_number, sizes)) or (1,) for sizes in kernel.launch.sizes)
    pairs = list(zip_longest(groups, threads, fillvalue=1))
    return tuple(g * t for g, t in pairs), tuple(t for _, t in pairs)


def _number(extent: Expr) -> int:
    assert isinstance(extent, Const), "the grids of tests are known"
    return int(extent.value)


def runtimes() -> Iterator[Runtime]:
    """Yield the runtimes that are here; none without pyopencl."""
    if cl is None:
        return
    with prepared(), suppress(cl.Error):
        for platform in cl.get_platforms():
            device = platform.get_devices()[0]
            context = cl.Context([device])
            yield Runtime(platform.name, context, cl.CommandQueue(context))


@cache
def here() -> dict[str, Runtime]:
    return {r.name: r for r in runtimes()}


def runtime_called(name: str) -> Runtime:
    """Return one of NAMES; the test fails where it is not here."""
    if NAMES[name] not in here():
        pytest.fail(f"{NAMES[name]} is not here; .ci/run and docs/testing.md say how to install it")
    return here()[NAMES[name]]


def check(cases: Iterable[Case], runtime: Runtime, lacks: Lacks = LACKS) -> None:
    """Assert that each kernel leaves the bits that the evaluator leaves."""
    named = [c._replace(kernel=replace(c.kernel, name=f"k{i}")) for i, c in enumerate(cases)]
    for first in range(0, len(named), TOGETHER):
        some = named[first : first + TOGETHER]
        program = runtime.build(render(*(c.kernel for c in some), lacks=lacks))
        for kernel, operands, extents in some:
            expected = {name: a.copy() for name, a in operands.items()}
            actual = {name: a.copy() for name, a in operands.items()}
            evaluate(kernel, expected, extents)
            runtime.run(program, kernel, actual, [extents[e.name] for e in kernel.extents])
            for name, a in expected.items():
                assert same_bits(a, actual[name]), (
                    f"{name}: {a} and {actual[name]}\n{render(kernel, lacks=lacks)}"
                )
