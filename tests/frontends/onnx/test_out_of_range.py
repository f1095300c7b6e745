"""Indices out of range: where ONNX Runtime refuses a call, so do we, and else values are equal.

Every operator that reads or writes where data says is met with indices around both ends of what
it allows, and at the ends of their type.
"""

from __future__ import annotations

import numpy as np
import pytest

from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx import load
from alpenglow.ir.target import Target
from onnx_node import single
from range_cases import LEVELS, MICROSOFT, Case, cases, compiled, edges, floats, outcome, session


@pytest.mark.parametrize("c", list(cases()), ids=str)
@pytest.mark.sampled(4)
def test_we_refuse_what_onnx_runtime_refuses(c: Case) -> None:
    for dtype in map(np.dtype, c.types):
        inputs = list(c.inputs)
        plain = inputs[c.at]
        assert plain is not None
        inputs[c.at] = plain.astype(dtype)
        model = single(c.op_type, inputs, c.opset, c.outputs, c.constants, c.domain,
                       **c.attributes)  # fmt: skip
        peer = session(model)
        runs = {"evaluate": lambda feeds, g=load(model): evaluate(g, feeds).values()}
        runs |= {t: compiled(model, t) for t in LEVELS if Target.parse(t).is_host_compatible()}
        for index in edges(c.extent, dtype):
            given = plain.astype(dtype)
            given.reshape(-1)[-1] = index
            feeds = {f"x{i}": x for i, x in enumerate(inputs)
                     if x is not None and i not in c.constants}  # fmt: skip
            feeds[f"x{c.at}"] = given
            expected = None if index in c.accepted else outcome(peer, feeds)
            for name, run in runs.items():
                actual = outcome(run, feeds)
                assert (actual is None) == (expected is None), f"{name}: {index} of {dtype}"
                for e, a in zip(expected or [], actual or [], strict=True):
                    np.testing.assert_allclose(a, e, 1e-5, 1e-5, err_msg=f"{name}: {index}")


@pytest.mark.parametrize("batch", [-1.5, -1, -0.5, 0, 1, 1.7, 2, 7, np.nan, np.inf])
def test_the_batch_of_a_region_is_a_float_in_max_roi_pool(batch: float) -> None:
    feeds = {"x0": floats(2, 1, 4, 4), "x1": np.array([[batch, 0, 0, 2, 2]], np.float32)}
    model = single("MaxRoiPool", list(feeds.values()), 21, pooled_shape=[1, 1])
    expected = outcome(session(model), feeds)

    for target in ("cpu", "interpreter"):
        actual = outcome(compiled(model, target), feeds)
        assert (actual is None) == (expected is None)
        assert expected is None or (actual is not None and expected[0] == actual[0])


@pytest.mark.parametrize("total", [4, 5])
@pytest.mark.parametrize("last", [-2, -1, 0, 2, 3, 4, 5, 9])
@pytest.mark.sampled(3)
def test_the_last_position_of_grouped_attention(total: int, last: int) -> None:
    step, past, table = floats(1, 1, 32), floats(1, 2, 4, 16), floats(16, 8)
    inputs = [step, step, step, past, past, np.array([last], np.int32), np.array(total, np.int32),
              table, table]  # fmt: skip
    model = single("GroupQueryAttention", inputs, 21, 3, (6,), MICROSOFT, num_heads=2,
                   kv_num_heads=2, do_rotary=1)  # fmt: skip
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if i != 6}
    expected = outcome(session(model), feeds)

    for target in ("cpu", "interpreter"):
        actual = outcome(compiled(model, target), feeds)
        assert (actual is None) == (expected is None)
        for e, a in zip(expected or [], actual or [], strict=True):
            assert e.shape == a.shape
