"""Training for few bits: a graph that rounds in floats as `quantize` would store, and back.

The plan is that of `quantize`.  Where that stores a tensor, the graph here rounds it by
`fake_quantize`, whose gradient goes straight through.  Scales of activations are the plan's; those
of weights and biases are computed from what these hold, which training changes.  Of what is trained
`stored` makes the graph that `quantize` writes.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import OptionError, TrainingError
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.types import DTYPES, NARROW_INTS, Array, TensorType
from alpenglow.ir.vocabulary import NUMPY
from alpenglow.ops.quantized.fake_quantize import FakeQuantize, moved_steps
from alpenglow.ops.quantized.quantize import QUANTIZED_INTS, Dequantize, Quantize
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Slice
from alpenglow.quant.activations import Activation
from alpenglow.quant.constants import Stored
from alpenglow.quant.convert import Writer, nowhere, spread, stretched
from alpenglow.quant.layers import ConstantOrigin, computed_constant, size, varying
from alpenglow.quant.options import QuantOptions
from alpenglow.quant.plan import Plan, plan
from alpenglow.quant.profile import Profile
from alpenglow.quant.scales import scale_nodes
from alpenglow.quant.schema import limits

ROUNDED = "_rounded"
"""What names of rounded values end with."""


def quantization_aware(
    graph: Graph, profile: Profile | None = None, options: QuantOptions | None = None
) -> Graph:
    """Return a copy of a graph that rounds values in floats as `quantize` would store them.

    Train the copy: gradients pass through roundings unchanged, and are 0 outside the range
    (Bengio, Léonard and Courville, 2013; Jacob et al., 2018).  `Trainer.trained` then returns the
    quantized graph.  Batch norms are not folded into weights, as in `quantize`.

    Args:
        graph: the graph.
        profile: the ranges that `profile_ranges` measured on this graph; None is allowed with
            `weights_only`.
        options: the element types and scales; None: `QuantOptions()`.

    Returns:
        The copy.

    Raises:
        OptionError: if nothing would be quantized, or an option is not supported in training.
        ModelError: if the profile belongs to another graph.
        UnsupportedError: if the graph has variables.

    Example:
        >>> graph = ag.load("model.onnx", {"x": (4, 8)})
        >>> options = ag.QuantOptions(weights_only="int8")
        >>> rounded = ag.train.quantization_aware(graph, options=options)
        >>> sorted(ag.trainable(rounded).variables)
        ['v', 'w']
    """
    options = options or QuantOptions()
    if options.convert_placeholders:
        raise OptionError(
            "convert_placeholders is not supported for training, which feeds floats",
            hint="without it, inputs are rounded all the same where a layer reads them",
        )
    if options.compute != "f32":
        raise OptionError(f"compute is {options.compute}, expected f32 for training")
    planned = plan(graph, profile, options, inside=False)
    if not planned.layers:
        reasons = "; ".join(f"{d.name}: {d.why}" for d in planned.decisions[:4])
        raise OptionError(
            f"no layer of graph {graph.name} can be quantized: {reasons or 'it has none'}",
            hint="a model in floats whose convolutions or products have constant weights; "
            "load(…, constants={'NAME': array}) makes constants of inputs",
        )
    g = _AwareWriter(planned).graph()
    g.prune()
    return g


def stored(g: Graph) -> Graph:
    """Return a copy of a graph in which what is rounded is stored: constants as integers, with
    their scales, the others by pairs of quantize and dequantize.

    Raises TrainingError where a constant to be stored holds NaN.
    """
    g = g.copy()
    moving = varying(g)
    for node in [n for n in g.nodes if isinstance(n.op, FakeQuantize)]:
        _store(g, node, moving)
    g.prune()
    return g


def _store(g: Graph, node: Node, moving: set[Value]) -> None:
    op, name = node.op, node.output.name.removesuffix(ROUNDED)
    if node.inputs[1] not in moving:
        _fix(g, node.inputs[1], f"{name}_scale")
    x, scale, zero = node.inputs
    assert isinstance(op, FakeQuantize) and x and scale and zero, "it has three operands"
    arrays = [None if v in moving else computed_constant(v) for v in (x, scale, zero)]
    if all(a is not None for a in arrays):
        q = _steps(g, op.dtype, [a for a in arrays if a is not None], f"{name}_quantized")
    elif op.dtype in QUANTIZED_INTS:
        q = g(Quantize(op.dtype), x, scale, zero, name=f"{name}_quantized")
    else:
        return
    g.replace(node.output, g(Dequantize(), q, scale, zero, name=f"{name}_dequantized"))


def _fix(g: Graph, scale: Value | None, name: str) -> None:
    """Make a constant of the scales that are stretched to `scale`."""
    v = few = scale
    while v is not None and v.producer and isinstance(v.producer.op, Broadcast | Reshape | Slice):
        (v,) = v.producer.inputs
        if v is not None and few is not None and size(v.type) < size(few.type):
            few = v
    assert few is not None, "movements have an operand"
    array = computed_constant(few)
    if few.array is None and array is not None:
        g.replace(few, g.constant(array, name))


def _steps(g: Graph, dtype: str, arrays: list[Array], name: str) -> Value:
    """Return what stands for x, of `arrays` x, scales and zero points, as a constant."""
    x, scale, zero = arrays
    moved, _ = moved_steps(NUMPY, dtype, x, scale, zero)
    if np.isnan(moved).any():
        raise TrainingError(f"'{name}' has NaN, expected numbers to quantize to {dtype}")
    q = np.clip(moved, *limits(dtype)).astype(np.int8 if dtype in NARROW_INTS else np.int64)
    return g.constant(q.astype(DTYPES[dtype]), name, TensorType(dtype, x.shape), copy=False)


class _AwareWriter(Writer):
    """Writes `fake_quantize` in place of each pair, of constants that stay as they are."""

    def __init__(self, planned: Plan) -> None:
        super().__init__(planned, floats=True)
        self.begin: dict[Value, Array] = _corrected(planned)

    def content(self, constant: Value) -> Array:
        return self.begin.get(constant, super().content(constant))

    def rounded(self, x: Value, a: Activation) -> Value:
        p = a.parameters
        return self.g(
            FakeQuantize(p.dtype), x, *spread(self.g, p, x.type), name=f"{a.name}{ROUNDED}"
        )

    def rounded_constant(self, stored: Stored) -> Value:
        x = self.origin(stored.source)
        t = x.type.with_dtype(stored.dtype)
        scale = stretched(self.g, scale_nodes(self.g, stored.scaling, self.origin), t, stored)
        name = f"{stored.name}{ROUNDED}"
        return self.g(FakeQuantize(stored.dtype), x, scale, nowhere(self.g, t), name=name)

    def origin(self, source: ConstantOrigin) -> Value:
        """Return what stands for the constant that is stored."""
        return self.known(source.base)

    def known(self, v: Value) -> Value:
        """Return what stands for a value, which may be computed of constants further down."""
        if v not in self.env:
            node = v.producer
            assert node is not None, "constants and inputs are there"
            for x in node.inputs:
                if x is not None:
                    self.known(x)
            self.write(node)
        return self.env[v]


def _corrected(planned: Plan) -> dict[Value, Array]:
    """Return what biases begin with, where they are no other layer's: a plan takes back by them
    what rounding makes of weights."""
    return {
        s.source.base: s.source.array
        for s in planned.constants
        if s.source.base.array is not None and _read_once(planned.graph, s.source)
    }


def _read_once(g: Graph, source: ConstantOrigin) -> bool:
    """Whether nothing reads a constant but the operand that comes from it."""
    node, index = source.place
    v = node.inputs[index]
    while v is not None and g.users(v) == 1:
        if v is source.base:
            return True
        assert v.producer is not None, "it comes from its base"
        v = v.producer.inputs[0]
    return False
