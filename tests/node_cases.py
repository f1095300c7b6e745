"""The node tests that come with ONNX: models of one node, with inputs and what they give.

All cases of an operator are compiled together, as one graph of unconnected parts.
"""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx import load
from alpenglow.ir.graph import Graph

Array = NDArray[Any]

BFLOAT = np.dtype(ml_dtypes.bfloat16)
TWO_STEPS = 2**-6
"""Of bf16; ONNX's own runner allows them."""


@dataclass(frozen=True)
class Case:
    """A model as a graph, arrays for its inputs, and the outputs that ONNX expects."""

    name: str
    graph: Graph
    feeds: dict[str, Array]
    expected: list[Array]
    rtol: float
    atol: float

    def check(self, outputs: Sequence[Array]) -> None:
        """Assert that outputs are what is expected."""
        types = [(y.dtype, y.shape) for y in self.expected]
        assert [(y.dtype, y.shape) for y in outputs] == types, self.name
        for wanted, y in zip(self.expected, outputs, strict=True):
            rtol = max(self.rtol, TWO_STEPS) if y.dtype == BFLOAT else self.rtol
            a, b = (v.astype(np.float64) for v in (y, wanted))
            np.testing.assert_allclose(a, b, rtol, self.atol, err_msg=self.name)


STORED = Path(sys.prefix) / "node_tests.pickle"
"""The version of onnx and its node tests, which take onnx 11 s to compute: `tools/install.sh`
stores them once, and each test process reads them in 0.1 s."""


@cache
def models() -> list[Any]:
    """Return all node tests of ONNX: as stored, or computed if another version was stored."""
    if STORED.exists():
        version, stored = pickle.loads(STORED.read_bytes())
        if version == onnx.__version__:
            return list(pickle.loads(stored))
    return computed()


def store() -> None:
    """Store the node tests of ONNX in this environment, unless they are stored."""
    if not (STORED.exists() and pickle.loads(STORED.read_bytes())[0] == onnx.__version__):
        whole = STORED.with_suffix(".new")
        whole.write_bytes(pickle.dumps((onnx.__version__, pickle.dumps(computed()))))
        whole.replace(STORED)


def computed() -> list[Any]:
    """Return all node tests of ONNX, as onnx computes them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some compute infinities on the way
        return list(load_model_tests(kind="node"))


def cases(op_type: str, constants: Sequence[int] = ()) -> list[Case]:
    """Return the tests of an operator; the inputs numbered in `constants` are initializers."""
    found = []
    for test in models():
        if op_type not in {n.op_type for n in test.model.graph.node}:
            continue
        model = onnx.ModelProto()
        model.CopyFrom(test.model)
        for inputs, outputs in test.data_sets:
            arrays = [as_array(t) for t in inputs]
            names = [i.name for i in model.graph.input]
            for i in constants:
                if i < len(arrays):
                    tensor = numpy_helper.from_array(arrays[i], names[i])
                    model.graph.initializer.append(tensor)
            g = load(model)
            feeds = {n: a for n, a in zip(names, arrays, strict=True) if n in g.inputs}
            expected = [as_array(t) for t in outputs]
            found.append(Case(test.name, g, feeds, expected, test.rtol, test.atol))
    assert found, f"no test of {op_type}"
    return found


def as_array(given: Array | onnx.TensorProto) -> Array:
    return np.asarray(
        numpy_helper.to_array(given) if isinstance(given, onnx.TensorProto) else given
    )


def check_cases(found: Sequence[Case]) -> None:
    """Assert that cases give what is expected, interpreted and compiled, all of it compiled."""
    for case in found:
        case.check(list(evaluate(case.graph, case.feeds).values()))
    exe = ag.compile(forest([case.graph for case in found]), threads=1)
    assert all(entry.kernel for entry in exe.artifact.table)
    made = exe(*[a for case in found for a in case.feeds.values()])
    rest = list(made) if isinstance(made, tuple | list) else [made]
    for case in found:
        count = len(case.graph.outputs)
        case.check(rest[:count])
        del rest[:count]


def forest(graphs: Sequence[Graph]) -> Graph:
    """Return the graphs beside each other in one; what belongs to graph i is called i_name."""
    g = Graph("forest")
    for i, part in enumerate(graphs):
        env = {v: g.input(f"g{i}_{k}", v.type) for k, v in part.inputs.items()}
        env |= {v: g.constant(v.array, type_=v.type) for v in part.constants()}
        for node in part.nodes:
            made = g.add(
                node.op, [None if v is None else env[v] for v in node.inputs], node.regions
            )
            env.update(zip(node.results, made.results, strict=True))
        for k, v in part.outputs.items():
            g.output(f"g{i}_{k}", env[v])
    return g
