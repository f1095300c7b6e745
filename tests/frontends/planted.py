"""Mistakes to plant in the converters of the front ends: each is one that a careless human makes.

They were written down before the goldens of converters existed, at operators common and rare, and
are spread over the front ends by the size of their converters.  `tests.frontends.plant` puts them
into copies of the package, one each, and runs the tests that `make test` has for the front end.
"""

from __future__ import annotations

from tests.fuzz.mistakes import Mistake

TORCH = "frontends/torch"
ONNX = "frontends/onnx"
STABLEHLO = "frontends/stablehlo"
TFLITE = "frontends/tflite"

OF_TORCH = (
    Mistake(
        "addcmul forgets its factor", f"{TORCH}/convert/arithmetic.py",
        "scaled(s, a, value, dtype), b, dtype=dtype)", "scaled(s, a, 1, dtype), b, dtype=dtype)",
    ),
    Mistake(
        "roll turns the other way", f"{TORCH}/convert/arrange.py",
        "count = shift % extent", "count = -shift % extent",
    ),
    Mistake(
        "attention ignores is_causal", f"{TORCH}/convert/attention.py",
        "Attention(factor, causal=causal)", "Attention(factor, causal=False)",
    ),
    Mistake(
        "the gradient of a convolution's bias sums over the wrong axes",
        f"{TORCH}/convert/backward.py",
        "ReduceSum((0, *range(2, dy.type.rank)), False), dy)",
        "ReduceSum((1, *range(2, dy.type.rank)), False), dy)",
    ),
    Mistake(
        "row 0 of a bag is never padding", f"{TORCH}/convert/bag.py",
        "if padding >= 0:", "if padding > 0:",
    ),
    Mistake(
        "tensor_split gives the rest to the last parts", f"{TORCH}/convert/composite.py",
        "[least + (i < more) for i in range(sections)]",
        "[least + (i >= sections - more) for i in range(sections)]",
    ),
    Mistake(
        "padding \"same\" has the odd element before", f"{TORCH}/convert/convolution.py",
        "(*(t // 2 for t in totals), *(t - t // 2 for t in totals))",
        "(*(t - t // 2 for t in totals), *(t // 2 for t in totals))",
    ),
    Mistake(
        "hardsigmoid has the slope of ONNX", f"{TORCH}/convert/elementwise.py",
        "activation.HardSigmoid(1 / 6, 0.5)", "activation.HardSigmoid(0.2, 0.5)",
    ),
    Mistake(
        "two normalizations of a Fourier transform change places", f"{TORCH}/convert/fourier.py",
        "(-0.5 if normalization == BY_ROOT else -1.0)",
        "(-1.0 if normalization == BY_ROOT else -0.5)",
    ),
    Mistake(
        "the last bin of a histogram is open above", f"{TORCH}/convert/histogram.py",
        "s.g(comparison.LessOrEqual(), x, high))", "s.g(comparison.Less(), x, high))",
    ),
    Mistake(
        "indices that are not adjacent do not come to the front", f"{TORCH}/convert/index.py",
        "Places(axes, tuples, axes[0] if adjacent else 0)", "Places(axes, tuples, axes[0])",
    ),
    Mistake(
        "searchsorted exchanges left and right", f"{TORCH}/convert/index.py",
        "s.g(LessOrEqual() if right else Less(), a, b)",
        "s.g(Less() if right else LessOrEqual(), a, b)",
    ),
    Mistake(
        "masked_fill exchanges its operands", f"{TORCH}/convert/logic.py",
        "values = s.operands(filling, x, dtype=s.result.dtype)",
        "values = s.operands(x, filling, dtype=s.result.dtype)",
    ),
    Mistake(
        "pixel_shuffle has the channels of a block last", f"{TORCH}/convert/movement.py",
        "depth_to_space(s.g, x, upscale_factor, False)",
        "depth_to_space(s.g, x, upscale_factor, True)",
    ),
    Mistake(
        "momentum is that of the old statistics", f"{TORCH}/convert/normalize.py",
        "s.filled(1 - momentum, new.type))\n"
        "    return s.cast(s.g(Add(), kept, s.g(Mul(), new, s.filled(momentum, new.type)))",
        "s.filled(momentum, new.type))\n"
        "    return s.cast(s.g(Add(), kept, s.g(Mul(), new, s.filled(1 - momentum, new.type)))",
    ),
    Mistake(
        "a zero point has the wrong sign", f"{TORCH}/convert/quantized.py",
        "zero = s.g(Sub(), s.filled(quant_min, steps.type), steps)",
        "zero = s.g(Add(), s.filled(quant_min, steps.type), steps)",
    ),
    Mistake(
        "uniform takes its end for its extent", f"{TORCH}/convert/random.py",
        "moved(s, y, bounds[0], bounds[1] - bounds[0])", "moved(s, y, bounds[0], bounds[1])",
    ),
    Mistake(
        "update and reset gate of a GRU stay in PyTorch's order", f"{TORCH}/convert/recurrent.py",
        "URH = (1, 0, 2)", "URH = (0, 1, 2)",
    ),
    Mistake(
        "a variance is not corrected by default", f"{TORCH}/convert/reduction.py",
        "less = 1 if correction is None else correction",
        "less = 0 if correction is None else correction",
    ),
    Mistake(
        "bicubic resizing has the kernel of Pillow", f"{TORCH}/convert/resize.py",
        "keys(distances, -0.75)", "keys(distances, -0.5)",
    ),
    Mistake(
        "cummax keeps the first of equals", f"{TORCH}/convert/running.py",
        "extreme(\"cummax\", comparison.GreaterOrEqual())",
        "extreme(\"cummax\", comparison.Greater())",
    ),
    Mistake(
        "index_put never accumulates", f"{TORCH}/convert/scatter.py",
        "places_of(s, x, listed), values, \"add\" if accumulate else \"none\")",
        "places_of(s, x, listed), values, \"none\")",
    ),
    Mistake(
        "an empty segment has a mean of 0", f"{TORCH}/convert/segment.py",
        "s.filled(math.nan if initial is None else float(initial), y.type)",
        "s.filled(0.0 if initial is None else float(initial), y.type)",
    ),
    Mistake(
        "average pooling always counts padding", f"{TORCH}/convert/window.py",
        "(1,) * n, ceil, count_pads)", "(1,) * n, ceil, True)",
    ),
    Mistake(
        "windows of adaptive pooling end too early", f"{TORCH}/convert/window.py",
        "-(-(i + 1) * size // max(count, 1))", "((i + 1) * size // max(count, 1))",
    ),
)  # fmt: skip

OF_ONNX = (
    Mistake(
        "left and right windows of attention change places", f"{ONNX}/convert/attention.py",
        "s.attribute(\"left_window_size\", -1),\n        s.attribute(\"right_window_size\", -1),",
        "s.attribute(\"right_window_size\", -1),\n        s.attribute(\"left_window_size\", -1),",
    ),
    Mistake(
        "TopK ignores largest", f"{ONNX}/convert/gather.py",
        "bool(s.attribute(\"largest\", 1)))", "True)",
    ),
    Mistake(
        "CropAndResize exchanges x and y", "extras/microsoft/onnx/convert_microsoft.py",
        "s.g(Concat(3), places[1], places[0])", "s.g(Concat(3), places[0], places[1])",
    ),
    Mistake(
        "unidirectional is the default of Attention",
        "extras/microsoft/onnx/convert_microsoft_attention.py",
        "more])\n    causal = bool(s.attribute(\"unidirectional\", 0))",
        "more])\n    causal = bool(s.attribute(\"unidirectional\", 1))",
    ),
    Mistake(
        "Normalizer by L1 sums what is negative", "extras/ml/onnx/convert_ml.py",
        "s.g(ReduceSum(axes), s.g(Abs(), x))", "s.g(ReduceSum(axes), x)",
    ),
    Mistake(
        "Pad with axes takes its amounts in pairs", f"{ONNX}/convert/movement.py",
        "= pads[i], pads[len(axes) + i]", "= pads[2 * i], pads[2 * i + 1]",
    ),
    Mistake(
        "an old Softmax is along the last axis", f"{ONNX}/convert/normalize.py",
        "axis = s.named_axis(1)",
        "axis = s.named_axis(-1)",
    ),
    Mistake(
        "scales are along the first axis by default", f"{ONNX}/convert/quantize.py",
        "axis, block = s.attribute(\"axis\", 1)", "axis, block = s.attribute(\"axis\", 0)",
    ),
    Mistake(
        "the backward direction of a layer runs forward", f"{ONNX}/convert/recurrent.py",
        "\"bidirectional\": (False, True)}", "\"bidirectional\": (False, False)}",
    ),
    Mistake(
        "exclusive and reverse change places", f"{ONNX}/convert/reduction.py",
        "return axis, exclusive, reverse",
        "return axis, reverse, exclusive",
    ),
    Mistake(
        "a window of a signal is symmetric by default", f"{ONNX}/convert/signal.py",
        "bool(s.attribute(\"periodic\", 1))", "bool(s.attribute(\"periodic\", 0))",
    ),
    Mistake(
        "batch normalization has the momentum of PyTorch", f"{ONNX}/convert/training.py",
        "s.attribute(\"momentum\", 0.9)", "s.attribute(\"momentum\", 0.1)",
    ),
    Mistake(
        "RoiAlign moves by half a pixel where it should not", f"{ONNX}/convert/vision.py",
        "return aligned_regions(s, mode == \"half_pixel\")",
        "return aligned_regions(s, mode != \"half_pixel\")",
    ),
    Mistake(
        "pooling ignores ceil_mode", f"{ONNX}/convert/window.py",
        "return kernel, *sliding(s, kernel), bool(s.attribute(\"ceil_mode\", 0))",
        "return kernel, *sliding(s, kernel), False",
    ),
)  # fmt: skip

OF_STABLEHLO = (
    Mistake(
        "an arithmetic shift by too much is one by all bits", f"{STABLEHLO}/convert/bits.py",
        "most = s.g(Minimum(), places, s.filled(bits - 1, places))",
        "most = s.g(Minimum(), places, s.filled(bits, places))",
    ),
    Mistake(
        "a float that reaches the end of an integer type wraps", f"{STABLEHLO}/convert/compare.py",
        "s.g(GreaterOrEqual(), wide, s.filled(float(high + 1), wide))",
        "s.g(Greater(), wide, s.filled(float(high + 1), wide))",
    ),
    Mistake(
        "axes of a convolution's result are permuted the wrong way round",
        f"{STABLEHLO}/convert/contraction.py",
        "s.g(Transpose(tuple(map(dims.output.index, range(rank)))), y)",
        "s.g(Transpose(dims.output), y)",
    ),
    Mistake(
        "an integer less a multiple keeps nothing of a division by 0",
        f"{STABLEHLO}/convert/elementwise.py",
        "s.g(Where(), s.g(Equal(), y, s.filled(0, y)), x, rest)",
        "s.g(Where(), s.g(Equal(), y, s.filled(0, y)), y, rest)",
    ),
    Mistake(
        "outer axes of IRFFT are transformed forwards", f"{STABLEHLO}/convert/fourier.py",
        "pairs = transformed(s.g, pairs, axes[:-1], True)",
        "pairs = transformed(s.g, pairs, axes[:-1], False)",
    ),
    Mistake(
        "a window of a gather may hang over the end", f"{STABLEHLO}/convert/gather.py",
        "most = x.type.shape[axis] - sizes[axis]", "most = x.type.shape[axis] - 1",
    ),
    Mistake(
        "low and high edges change places", f"{STABLEHLO}/convert/movement.py",
        "low, high = s.numbers(\"edge_padding_low\"), s.numbers(\"edge_padding_high\")",
        "low, high = s.numbers(\"edge_padding_high\"), s.numbers(\"edge_padding_low\")",
    ),
    Mistake(
        "a reduction by and says if any holds", f"{STABLEHLO}/convert/reduction.py",
        "\"stablehlo.and\": \"stablehlo.minimum\"", "\"stablehlo.and\": \"stablehlo.maximum\"",
    ),
    Mistake(
        "a scattered window that hangs over the end is written", f"{STABLEHLO}/convert/scatter.py",
        "_within(s, starts[axis], fixed(extent) - fixed(size))",
        "_within(s, starts[axis], fixed(extent) - 1)",
    ),
    Mistake(
        "a descending sort ascends", f"{STABLEHLO}/convert/sort.py",
        "TopK(axis, value.type.shape[axis], key.falls)",
        "TopK(axis, value.type.shape[axis], False)",
    ),
    Mistake(
        "tests for the two infinities change places", f"{STABLEHLO}/convert/special.py",
        "IsInf(s.plain != \"is_pos_inf\", s.plain != \"is_neg_inf\")",
        "IsInf(s.plain != \"is_neg_inf\", s.plain != \"is_pos_inf\")",
    ),
)  # fmt: skip

OF_TFLITE = (
    Mistake(
        "adj_x transposes the second operand", f"{TFLITE}/convert/contraction.py",
        "turned(s, s.input(1), s.option(\"adj_y\"))", "turned(s, s.input(1), s.option(\"adj_x\"))",
    ),
    Mistake(
        "ONE_HOT exchanges on and off", f"{TFLITE}/convert/gather.py",
        "(s.reshaped(s.input(i), (1,)) for i in (3, 2))",
        "(s.reshaped(s.input(i), (1,)) for i in (2, 3))",
    ),
    Mistake(
        "SPACE_TO_DEPTH has the channels of a block first", f"{TFLITE}/convert/movement.py",
        "space_to_depth(s.g, channels_first(s.g, x), size, True)",
        "space_to_depth(s.g, channels_first(s.g, x), size, False)",
    ),
    Mistake(
        "halves are rounded by a whole", f"{TFLITE}/convert/quantised_elementwise.py",
        "half = s.filled(1 << (shift - 1), sums)", "half = s.filled(1 << shift, sums)",
    ),
    Mistake(
        "rows of a dynamic product are measured along the other axis",
        f"{TFLITE}/convert/quantised_products.py",
        "(2 if s.option(\"adj_x\") else 1)", "(1 if s.option(\"adj_x\") else 2)",
    ),
    Mistake(
        "the zero points of a sum are added", f"{TFLITE}/convert/quantised_reduction.py",
        "np.float32(to) - np.float32(count * zero) * factor",
        "np.float32(to) + np.float32(count * zero) * factor",
    ),
    Mistake(
        "softmax of integers takes the greatest of a column", f"{TFLITE}/convert/quantised_rows.py",
        "most = s.g(ReduceMax((x.type.rank - 1,), True), x)\n    return stretch",
        "most = s.g(ReduceMax((x.type.rank - 2,), True), x)\n    return stretch",
    ),
    Mistake(
        "alpha of a local response norm is a mean's", f"{TFLITE}/convert/reduction.py",
        "s.option(\"alpha\") * size", "s.option(\"alpha\")",
    ),
    Mistake(
        "a masked end of a slice backwards is the first of all", f"{TFLITE}/convert/slice.py",
        "end = FAR if step > 0 else -FAR", "end = FAR",
    ),
    Mistake(
        "strides of a pooling change places", f"{TFLITE}/convert/window.py",
        "strides = s.option(\"stride_h\"), s.option(\"stride_w\")",
        "strides = s.option(\"stride_w\"), s.option(\"stride_h\")",
    ),
)  # fmt: skip

PLANTED = (*OF_TORCH, *OF_ONNX, *OF_STABLEHLO, *OF_TFLITE)
