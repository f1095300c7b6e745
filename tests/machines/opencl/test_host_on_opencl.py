"""Networks of a host whose steps are on OpenCL devices and beside them."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base import cpus
from alpenglow.host.network import Network, Step
from alpenglow.ops.elementwise.arithmetic import Add, Neg
from alpenglow.ops.reduction.softmax import Softmax

pytestmark = pytest.mark.opencl
PATIENT = 60.0


@pytest.mark.parametrize("runtime", ["intel", "pocl"])
def test_steps_meet_on_a_device_and_beside_it(
    runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpus, "granted_cpus", lambda: cpus.allowed_cpus()[-1:])
    target, here = ag.Target.parse(f"opencl-cpu:{runtime}"), ag.Target.parse("cpu")
    g, h = ag.Graph("one"), ag.Graph("two")
    x = g.input("x", "f32[4,8]")
    g.output("p", g(Softmax(axis=1), g(Add(), x, x)))
    h.output("y", h(Neg(), h.input("p", "f32[4,8]")))
    first, second, beside = ag.compile(g, target), ag.compile(h, target), ag.compile(h, here, 1)
    array = np.arange(32, dtype=np.float32).reshape(4, 8)
    expected = [first.run({"x": k * array})["p"] for k in range(100)]

    with ag.Host([ag.Worker("d", target), ag.Worker("c", here)]) as host:
        host.add(Network("same", 1, (Step({"d": first}), Step({"d": second}))))
        host.add(Network("mixed", 1, (Step({"d": first}), Step({"c": beside})), ("p", "y")))
        for name in ("same", "mixed"):
            futures = [host.submit(name, {"x": k * array}) for k in range(100)]
            for p, future in zip(expected, futures, strict=True):
                np.testing.assert_array_equal(-p, future.result(PATIENT)["y"])
