"""Write a model as a shared library and call it through ctypes, without a C compiler."""

import ctypes
import re
import tempfile
from pathlib import Path

import numpy as np

import alpenglow as ag

g = ag.Graph("dense")
x = ag.Expression(g, g.input("x", "f32[1,8]"))
w = np.linspace(-1, 1, 8 * 4, dtype=np.float32).reshape(8, 4)
g.output("y", ag.functions.relu(x @ w).value)


def aligned(nbytes, alignment):
    """Return zeroed memory that begins at a multiple of `alignment`, as an array of bytes."""
    memory = np.zeros(nbytes + alignment, np.uint8)
    start = -memory.ctypes.data % alignment
    return memory[start : start + nbytes]


with tempfile.TemporaryDirectory() as scratch_folder:
    folder = Path(scratch_folder, "bundle")
    ag.bundle(g, folder, entry="dense", format="shared", target="x86-64-v2")
    header = (folder / "dense.h").read_text()
    print("files:", *sorted(p.name for p in folder.iterdir() if p.name[0] != "."))

    # The header states sizes and offsets in bytes.
    found = re.findall(r"#define DENSE_(\w+) +\(?(\d+)", header)
    sizes = {name: int(number) for name, number in found}
    alignment = sizes["ALIGNMENT"]
    mutable = aligned(sizes["MUTABLE_NBYTES"], alignment)
    scratch = aligned(sizes["SCRATCH_NBYTES"], alignment)
    data = np.fromfile(folder / "dense.weights.bin", np.uint8)
    constants = aligned(data.size, alignment)
    constants[:] = data

    function = ctypes.CDLL(str(folder / "libdense.so")).dense
    function.argtypes = [ctypes.c_void_p] * 3
    sample = np.arange(8, dtype=np.float32)
    start = sizes["INPUT_X_OFFSET"]
    mutable[start : start + 32] = sample.view(np.uint8)
    status = function(constants.ctypes.data, mutable.ctypes.data, scratch.ctypes.data)
    start = sizes["OUTPUT_Y_OFFSET"]
    y = mutable[start : start + 16].view(np.float32)

print("status:", status)
print("y:", y.round(3))
print("agrees with ag.compile:", np.allclose(y, ag.compile(g)(sample[None])[0]))
