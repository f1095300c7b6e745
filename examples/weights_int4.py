"""Store the weights of matrix multiplications as int4 and compute in f32, without samples."""

import tempfile
from pathlib import Path

import numpy as np

import alpenglow as ag

rng = np.random.default_rng(0)
g = ag.Graph("mlp")
x = ag.Expression(g, g.input("x", "f32[1,256]"))
first = rng.standard_normal((256, 512), np.float32) / 16
second = rng.standard_normal((512, 256), np.float32) / 22
g.output("y", (ag.functions.relu(x @ first) @ second).value)


def archive_bytes(exe):
    with tempfile.TemporaryDirectory() as folder:
        exe.save(Path(folder, "mlp.ago"))
        return Path(folder, "mlp.ago").stat().st_size


sample = rng.standard_normal((1, 256), np.float32)
exe = ag.compile(g)
expected = exe(sample)
print(f"f32: archive of {archive_bytes(exe) / 1e6:.2f} MB")

# 32 neighboring inputs of an output have one scale.
for dtype in ("int8", "int4"):
    light = ag.compile(ag.quantize(g, options=ag.QuantOptions(weights_only=dtype, group=32)))
    error = np.linalg.norm(light(sample) - expected) / np.linalg.norm(expected)
    print(f"{dtype}: archive of {archive_bytes(light) / 1e6:.2f} MB, relative error {error:.3f}")
