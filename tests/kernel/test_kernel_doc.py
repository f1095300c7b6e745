"""docs/kernel.md: its program runs, in NumPy and through LLVM, and its texts are what is printed.

``pytest --bless tests/kernel/test_kernel_doc.py`` rewrites the texts.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import alpenglow.render.llvm.render as llvm
import alpenglow.render.opencl.render as opencl
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.stmt import Kernel
from alpenglow.kernel.text import print_kernel
from alpenglow.machines.cpu.assemble import assemble
from alpenglow.machines.cpu.jit import Code
from alpenglow.machines.cpu.legal import legal

DOC = Path(__file__).resolve().parents[2] / "docs" / "kernel.md"
HOST = Target.parse("cpu")
PRINTERS: dict[str, Callable[[Kernel], str]] = {
    "kernel": print_kernel,
    "opencl": opencl.render,
    "subgroups": partial(opencl.render, lacks=opencl.WITH_SUBGROUPS),
}

GRIDS = {"gpu_matmul", "fragments", "row_softmax"}
KERNELS = (
    "relu", "matmul", "gpu_matmul", "fragments", "row_softmax", "prefix_sum", "gather", "top_k",
    "int8_dot",
)  # fmt: skip
NOT_ON_THE_CPU = GRIDS | (set() if HOST.has("avx512vnni") else {"int8_dot"})
PARTS = ((0, 1), (1, 4))
"""Every parallel loop of the page has 4 iterations."""


def run_doc() -> dict[str, Any]:
    """Execute the Python blocks in order; returns what they define."""
    scope: dict[str, Any] = {}
    text = DOC.read_text()
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block[1], DOC, "exec"), scope)
    return scope


def test_the_program_gives_what_numpy_gives() -> None:
    scope = run_doc()

    assert all(isinstance(scope[name], Kernel) for name in KERNELS)


def test_the_printed_texts_are_up_to_date(bless: bool) -> None:
    scope = run_doc()
    actual = DOC.read_text()

    def printed(block: re.Match[str]) -> str:
        return f"```{block[1]} {block[2]}\n{PRINTERS[block[1]](scope[block[2]])}```"

    pattern = rf"^```({'|'.join(PRINTERS)}) (\w+)\n.*?^```$"
    expected, shown = re.subn(pattern, printed, actual, flags=re.MULTILINE | re.DOTALL)
    if bless:
        DOC.write_text(expected)
        actual = expected

    assert expected == actual
    assert shown == len(KERNELS) + len(GRIDS)


def test_llvm_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program runs once more, with compiled code in place of the evaluator."""
    compiled: list[str] = []

    def run(
        kernel: Kernel, operands: Mapping[str, Array], extents: Mapping[str, int] | None = None,
        **grid: Any,
    ) -> None:  # fmt: skip
        if kernel.name in NOT_ON_THE_CPU:
            evaluate(kernel, operands, extents, **grid)
            return
        run_compiled(kernel, operands, extents or {})
        compiled.append(kernel.name)

    monkeypatch.setattr("alpenglow.kernel.evaluate.evaluate", run)
    run_doc()

    assert compiled == [name for name in KERNELS if name not in NOT_ON_THE_CPU]


def run_compiled(kernel: Kernel, operands: Mapping[str, Array], extents: Mapping[str, int]) -> None:
    """Compile `kernel` for this machine and run it, its parallel loop in two parts."""
    code = Code.install([assemble(llvm.render(legal(kernel, HOST)), HOST)])
    addresses = [operands[b.name].ctypes.data for b in kernel.buffers]
    numbers = [extents[e.name] for e in kernel.extents]
    args = (ctypes.c_int64 * (len(addresses) + len(numbers)))(*addresses, *numbers)
    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    function = entry(code.address(kernel.name))
    for begin, end in PARTS:
        if begin == 0 or kernel.parallel is not None:
            function(ctypes.addressof(args), begin, end)
