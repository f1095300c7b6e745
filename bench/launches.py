"""How long an OpenCL device takes to launch a kernel of a recorded list, and a call around one.

    python bench/launches.py [DEVICE …]

Kernels add one to 64 numbers, so that hardly anything but the launch takes time.  A call copies
256 bytes there, runs one kernel and copies them back.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from alpenglow.ir.target import Target
from alpenglow.machines.api import Artifact, Launch
from alpenglow.machines.opencl.device import OpenClDevice, device_of
from alpenglow.machines.opencl.devices import devices, find
from alpenglow.program import Program

KERNELS, ROUNDS = 100, 50

TEXT = b"""
__kernel void add(__global uchar *base, long n, long at) {
  __global float *y = (__global float *)(base + at);
  long i = get_global_id(0);
  if (i < n) y[i] += 1.0f;
}
"""


def main(words: list[str]) -> None:
    for facts in [find(w) for w in words] or devices():
        device = device_of(facts)
        nothing = Program("nothing", {}, (), (), ())
        code = device.install(Artifact(Target.parse("interpreter"), nothing, {"add": TEXT}, ()))
        memory = device.allocate(256)
        launch = Launch("add", ((memory, 0),), (64,), (4,), (16,))
        many, one = device.record(code, [launch] * KERNELS), device.record(code, [launch])
        array = np.zeros(256, np.uint8)

        def call(device: OpenClDevice = device) -> None:
            event = device.replay(one, [device.upload(memory, 0, array)])
            device.wait(device.download(memory, 0, array, [event]))

        print(f"{facts.target} {facts.name} ({facts.platform})")
        print(
            f"  a kernel of {KERNELS}: {timed(lambda: device.wait(device.replay(many)), KERNELS)}"
        )
        print(f"  a call:          {timed(call, 1)}")


def timed(run: Callable[[], None], parts: int) -> str:
    seconds = []
    for _ in range(ROUNDS * KERNELS // parts):
        begin = time.perf_counter()
        run()
        seconds.append((time.perf_counter() - begin) / parts)
    return f"{min(seconds) * 1e6:.1f} µs at best, {median(seconds) * 1e6:.1f} µs in the middle"


if __name__ == "__main__":
    main(sys.argv[1:])
