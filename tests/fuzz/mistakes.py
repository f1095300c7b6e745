"""Mistakes to plant: each is one that somebody could make, in one place of the compiler.

They were chosen before anybody looked at which of them fuzzing catches: the first four are those
that stood in the compiler when its tests said that all was well.  `plant` puts them into a copy.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mistake:
    """A text in a file of the package that stands there once, and what is to stand in its place."""

    name: str
    file: str
    old: str
    new: str


TEMPLATES = "machines/vector/templates"
LOOPS = "loops"
ONNX = "frontends/onnx"

MISTAKES = (
    # What once was there.
    Mistake(
        "a 1x1 convolution forgets which rows of padding were left out", f"{TEMPLATES}/conv.py",
        "op.group, op.bands)\n    return spatial > 1",
        "op.group, op.bands, op.edges)\n    return spatial > 1",
    ),
    Mistake(
        "concat asks for identity where it means position",
        "machines/vector/passes/propagate_layout.py",
        "if not full and i != last:", "if not full and v is not node.inputs[-1]:",
    ),
    Mistake(
        "a vector load where a step of 0 means a splat", f"{TEMPLATES}/matmul.py",
        "in_lanes(y.buffer, at, lanes, mask))",
        "Load(y.buffer, at.base if is_number(across, 1) else at.expr(), lanes, mask))",
    ),
    Mistake(
        "mish overflows before it divides", "ops/elementwise/activation.py",
        "e = m.exp(m.minimum(x, 20.0))\n        n = m.mul(e, m.add(e, 2.0))\n"
        "        # Whichever of the product and the quotient is computed first, neither "
        "overflows.\n"
        "        return m.where(m.gt(x, 20.0), x, m.mul(x, m.div(n, m.add(n, 2.0))))",
        "e = m.exp(x)\n        n = m.mul(e, m.add(e, 2.0))\n"
        "        return m.mul(x, m.div(n, m.add(n, 2.0)))",
    ),
    # Templates.
    Mistake(
        "no mask where columns of a product end", f"{TEMPLATES}/matmul.py",
        "if not ragged(columns, width) or (alone and (j + 1) * lanes <= columns):", "if True:",
    ),
    Mistake(
        "the rest of an unrolled sum begins at the wrong step", f"{TEMPLATES}/matmul.py",
        "step(Const(full * UNROLL + u))", "step(Const(full + u))",
    ),
    Mistake(
        "the correction of two zero points has the wrong sign", f"{TEMPLATES}/words.py",
        "Const(-self.above * self.below, \"i32\")", "Const(self.above * self.below, \"i32\")",
    ),
    Mistake(
        "depthwise convolution forgets dilations", f"{TEMPLATES}/depthwise.py",
        "where = [c * s + t * d for c, s, t, d in", "where = [c * s + t for c, s, t, d in",
    ),
    Mistake(
        "winograd stores a row too many", f"{TEMPLATES}/winograd.py",
        "if is_open(height) or (height % size and i >= height % size):",
        "if is_open(height) or (height % size and i > height % size):",
    ),
    Mistake(
        "odd bytes are multiplied without their signs", f"{TEMPLATES}/products.py",
        "return [Bitcast(even, \"i32\"), Bitcast(Binary(\"shr\", halves, eight), \"i32\")]",
        "unsigned = Binary(\"shr\", Bitcast(w, \"u16\"), Const(8, \"u16\", halves.lanes))\n"
        "    return [Bitcast(even, \"i32\"), Bitcast(unsigned, \"i32\")]",
    ),
    Mistake(
        "channels past the last are transposed as well", f"{TEMPLATES}/transpose.py",
        "if i and channels % lanes and i >= channels % lanes:",
        "if i and channels % lanes and i > channels % lanes:",
    ),
    # Loop forms.
    Mistake(
        "no mask for the last lanes", f"{LOOPS}/blocks.py",
        "    elif rest:\n        block(at, Const(full * lanes), lanes, True)",
        "    elif rest:\n        block(at, Const(full * lanes), lanes, False)",
    ),
    Mistake(
        "the largest begins with 0", f"{LOOPS}/reduction/reduction.py",
        "return \"max\", dtype, lowest(x.numpy)", "return \"max\", dtype, 0",
    ),
    Mistake(
        "the last of equal elements is not asked for", f"{LOOPS}/reduction/search.py",
        "wins = k.m.ge(x, y) if op.last else k.m.gt(x, y)", "wins = k.m.gt(x, y)",
    ),
    Mistake(
        "reflection repeats the edge", "machines/vector/passes/expand_padding.py",
        "axis, count if leading else extent - 2, count, -1)]",
        "axis, count - 1 if leading else extent - 1, count, -1)]",
    ),
    Mistake(
        "what hangs over the end of padding counts in an average", f"{LOOPS}/window/pooling.py",
        "counted = within(k, shifted, grown, [op.ceil] * spatial)", "counted = None",
    ),
    Mistake(
        "an index from the end is off by one", f"{LOOPS}/tensor/gather.py",
        "front = k.m.where(k.m.lt(at, 0), k.m.add(at, extent), at)",
        "front = k.m.where(k.m.lt(at, 0), k.m.add(at, extent - 1), at)",
    ),
    Mistake(
        "a group of a convolution reads the channels of the first",
        f"{LOOPS}/window/contraction.py",
        "first = (o // per_out) * per_in if op.group > 1 else None", "first = None",
    ),
    Mistake(
        "the reset gate is left out", "ops/sequence/recurrent.py",
        "b(MatMul(), b(Mul(), s, h), hidden)", "b(MatMul(), h, hidden)",
    ),
    Mistake(
        "all sequences of a group are multiplied by the weights of the first one's state",
        f"{LOOPS}/control/rows.py", "Load(rows.buffer, i + rows.first(j))",
        "Load(rows.buffer, i)",
    ),
    Mistake(
        "trees send a NaN where their nodes say of the sibling", "extras/ml/loops/tree.py",
        "k.m.bit_and(k.m.isnan(value), nan)", "k.m.bit_and(k.m.isnan(value), k.m.bit_not(nan))",
    ),
    Mistake(
        "the zero points of weights are multiplied by the state of the first sequence",
        f"{LOOPS}/sequence/recurrent_integer.py",
        "m.neg(self.product.steps(j))", "m.neg(self.product.steps(Const(0)))",
    ),
    Mistake(
        "the total of a row of softmax counts masked lanes", f"{LOOPS}/reduction/normalize.py",
        "total.add(slot, unless_masked(k, share, 0))", "total.add(slot, share)",
    ),
    Mistake(
        "the smallest k are found among the first k", f"{LOOPS}/tensor/order.py",
        "return k.m.gt(x, y) if op.largest else k.m.lt(x, y)", "return k.m.gt(x, y)",
    ),
    # Passes.
    Mistake(
        "a constant less a convolution becomes a convolution less a constant", "passes/absorb.py",
        "if isinstance(node.op, Sub) and y is not node.inputs[0]:\n                    continue\n",
        "if isinstance(node.op, Sub) and y is not node.inputs[0]:\n                    pass\n",
    ),
    Mistake(
        "padding joins an average that does not count padding", "passes/absorb.py",
        "if more is None or not (op.count_pads or not any(op.pads)):", "if more is None:",
    ),
    Mistake(
        "pads are permuted the wrong way round", "passes/sink.py",
        "before = tuple(op.before[i] for i in back)", "before = tuple(op.before[i] for i in perm)",
    ),
    Mistake(
        "the axis of a concat does not move with the transpose", "passes/sink.py",
        "g(Concat(perm[node.op.axis]), *parts)", "g(Concat(node.op.axis), *parts)",
    ),
    Mistake(
        "two transposes are composed in the wrong order", "passes/rearrange.py",
        "g(Transpose(tuple(p[i] for i in q)), x)", "g(Transpose(tuple(q[i] for i in p)), x)",
    ),
    Mistake(
        "a difference of one operator is the same subexpression", "passes/cse.py",
        "return op, tuple(operands), tuple(print_graph(r) for r in node.regions)",
        "return type(op), tuple(operands), tuple(print_graph(r) for r in node.regions)",
    ),
    Mistake(
        "a row that is stretched counts as a number", "passes/fuse.py",
        "return only.array.reshape(()) if only.array.size == 1 else None",
        "return only.array.reshape(-1)[:1].reshape(()) if only.array.size else None",
    ),
    Mistake(
        "x to the power of three is x times x", "passes/identities.py",
        "case [Value() as x, Value() as y] if uniform(y) == 2:",
        "case [Value() as x, Value() as y] if uniform(y) in (2, 3):",
    ),
    # Programs.
    Mistake(
        "a result takes over memory that is still read", "program/share.py",
        "if operand is None or last[operand.buffer] != k:", "if operand is None:",
    ),
    Mistake(
        "a block may begin on the step on which another ends", "program/offsets.py",
        "live = [j for j in live if blocks[j].end > begin]",
        "live = [j for j in live if blocks[j].end - 1 > begin]",
    ),
    Mistake(
        "a slice with steps begins at the wrong place", "program/views.py",
        "offset = x.offset + sum(a * s for a, s in zip(first, x.strides, strict=True))\n"
        "            strides = tuple(a * b",
        "offset = x.offset + sum(a * s * t for a, s, t in zip(first, x.strides, steps))\n"
        "            strides = tuple(a * b",
    ),
    # Operators and converters.
    Mistake(
        "quantizing rounds halves away from zero", "ops/quantized/quantize.py",
        "m.add(m.round(self._quotient(m, x, scale)),",
        "m.add(m.floor(m.add(self._quotient(m, x, scale), 0.5)),",
    ),
    Mistake(
        "padding for SAME_LOWER is that of SAME_UPPER", f"{ONNX}/convert/window.py",
        "lower, pairs = mode == \"SAME_LOWER\", []", "lower, pairs = False, []",
    ),
    Mistake(
        "a slice backwards ends before the first element", "frontends/slices.py",
        "last = offset(end, extent, -1, extent - 1)", "last = offset(end, extent, 0, extent - 1)",
    ),
    Mistake(
        "columns and rows of a block change places", "frontends/movement.py",
        "perm = (2, 3, 0, 4, 1) if depth_first else (0, 3, 1, 4, 2)",
        "perm = (2, 3, 0, 4, 1) if depth_first else (0, 3, 2, 4, 1)",
    ),
    Mistake(
        "the scale of an extent is rounded up", f"{ONNX}/convert/resize.py",
        "sizes.append(int(np.floor(np.float32(d) * np.float32(f))))",
        "sizes.append(int(np.ceil(np.float32(d) * np.float32(f))))",
    ),
    Mistake(
        "what no byte stands for is padded with the last byte", "passes/quantized.py",
        'op.mode != "constant" or _is_step', 'op.mode != "" or _is_step',
    ),
    Mistake(
        "a limit that all bytes lie behind is the last byte", "passes/quantized.py",
        "if not (_is_below(low, grid) or _is_step(low, grid)):", "if math.isnan(low):",
    ),
    Mistake(
        "the largest u32 stands before all others", "loops/tensor/counted.py",
        "k.m.sub(wide, INT_MAX + 1)", "k.m.sub(wide, INT_MAX)",
    ),
    Mistake(
        "a second direction begins with the state of the first", f"{ONNX}/convert/recurrent.py",
        "    return of_direction(s, states, direction)", "    return of_direction(s, states, 0)",
    ),
)  # fmt: skip
