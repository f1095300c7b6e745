"""Compile once for any batch size, save the code, and open it in another process."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import alpenglow as ag

g = ag.Graph("classifier")
x = ag.Expression(g, g.input("x", "f32[N,16]"))
rng = np.random.default_rng(0)
hidden = ag.functions.relu(x @ rng.standard_normal((16, 32), np.float32))
scores = hidden @ rng.standard_normal((32, 4), np.float32)
g.output("shares", ag.functions.softmax(scores, axis=-1).value)

# N is a dynamic dimension: code is compiled at the first call and reused for other sizes.
exe = ag.compile(g)
for batch in (8, 3, 100):
    shares = exe(np.ones((batch, 16), np.float32))
    print(f"batch {batch}: {shares.shape}, {len(exe.artifacts)} compiled")

# The archive holds the machine code and the weights.  An archive runs as a program does: open only
# archives from a trusted source.
ELSEWHERE = """
import sys
import numpy as np
import alpenglow as ag

exe = ag.open(sys.argv[1])
print("another process:", exe.inputs, len(exe.artifacts), "compiled")
print(exe(np.ones((2, 16), np.float32)).round(3)[0])
"""
with tempfile.TemporaryDirectory() as folder:
    archive = Path(folder, "classifier.ago")
    exe.save(archive)
    command = [sys.executable, "-c", ELSEWHERE, str(archive)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    print(done.stdout, end="")
