"""Kernels with the subgroups of an OpenCL runtime: python tests/opencl_subgroups.py NAME."""

from __future__ import annotations

import sys
from itertools import chain

from alpenglow.render.opencl.render import WITH_SUBGROUPS
from group_kernels import exchanges, products
from opencl_devices import check, runtimes

if __name__ == "__main__":
    (runtime,) = [r for r in runtimes() if r.name == sys.argv[1]]
    check(chain(exchanges(16), products()), runtime, WITH_SUBGROUPS)
