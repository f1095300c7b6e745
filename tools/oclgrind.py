"""Run operators and ONNX's node tests as grids under Oclgrind, which tells of races and of accesses
out of bounds.

    python tools/oclgrind.py --every 10

Oclgrind (Debian: oclgrind) is a runtime of OpenCL that interprets kernels.  First it has to find
what is wrong with two kernels: one whose threads race, and one that leaves its operand.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

RUNTIMES = ("/usr/lib/oclgrind", "/usr/local/lib/oclgrind", "/usr/lib")

PLANTED = """
import numpy as np
from alpenglow.ir.target import Target
from alpenglow.machines.api import Artifact, Launch
from alpenglow.machines.opencl.device import device_of
from alpenglow.machines.opencl.devices import find
from alpenglow.program import Program

HEAD = "__kernel void {0}(__global uchar *m, long at) {{ __global int *y = (__global int *)m; "
TEXTS = {
    "races": "__local int s[8]; long i = get_local_id(0); s[i] = i; y[i] = s[(i + 1) % 8]; }",
    "leaves": "y[get_local_id(0) + 1] = 1; }",
}
texts = {name: (HEAD.format(name) + body).encode() for name, body in TEXTS.items()}
device = device_of(find(""))
code = device.install(
    Artifact(Target.parse("interpreter"), Program("nothing", {}, (), (), ()), texts, ())
)
memory = device.allocate(32)
for name in texts:
    device.wait(device.replay(device.record(code, [Launch(name, ((memory, 0),), (), (1,), (8,))])))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what Oclgrind tells; 1 if that is anything, or a case is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--every", type=int, default=10, help="each N-th case only")
    parser.add_argument("--target", default="opencl-gpu")
    options = parser.parse_args(arguments)
    folders = [f for f in RUNTIMES if Path(f, "liboclgrind-rt-icd.so").exists()]
    if not folders:
        sys.exit(f"Oclgrind is in none of {', '.join(RUNTIMES)}; on Debian: apt install oclgrind")
    with tempfile.TemporaryDirectory() as scratch:
        icd, log = Path(scratch, "oclgrind.icd"), Path(scratch, "log")
        icd.write_text(f"{folders[0]}/liboclgrind-rt-icd.so\n")
        environment = {
            **os.environ, "OCL_ICD_VENDORS": str(icd), "OCLGRIND_LOG": str(log),
            "OCLGRIND_DATA_RACES": "1", "ALPENGLOW_CACHE": str(Path(scratch, "cache")),
        }  # fmt: skip

        def told(*command: str) -> tuple[int, str]:
            """Return the exit code of Python, and what Oclgrind logged."""
            log.unlink(missing_ok=True)
            # It crashes where several threads compile.
            one = {min(os.sched_getaffinity(0))}
            done = subprocess.run([sys.executable, *command], env=environment, check=False,
                                  preexec_fn=lambda: os.sched_setaffinity(0, one))  # fmt: skip
            return done.returncode, log.read_text() if log.exists() else ""

        code, text = told("-c", PLANTED)
        if code or "data race" not in text or "Invalid write" not in text:
            sys.exit(f"Oclgrind does not find planted mistakes (exit code {code}):\n{text}")
        code, text = told("-m", "alpenglow", "test-machine", options.target,
                          "--every", str(options.every))  # fmt: skip
    print(text or "Oclgrind found nothing.")
    return 1 if code or text else 0


if __name__ == "__main__":
    sys.exit(main())
