"""TFLite's spellings of operations: calls that add operators to a model, typed by LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tests.frontends.tflite.flat import CODES, NUMBERS, file_of

from alpenglow.frontends.tflite.converters import find
from alpenglow.frontends.tflite.file.schema import OPTION_2_NUMBERS, OPTION_NUMBERS
from alpenglow.ir.types import NAMES

from ..elements import DTYPES, Array, Shape
from ..inference import Declined
from .program import name_of

Grid = tuple[float, int]
QUANTISED = ("int8", "uint8", "int16")
FIXED: dict[tuple[str, str], Grid] = {
    ("LOGISTIC", "int8"): (1 / 256, -128), ("LOGISTIC", "uint8"): (1 / 256, 0),
    ("LOGISTIC", "int16"): (1 / 32768, 0), ("TANH", "int8"): (1 / 128, 0),
    ("TANH", "uint8"): (1 / 128, 128), ("TANH", "int16"): (1 / 32768, 0),
    ("SOFTMAX", "int8"): (1 / 256, -128), ("SOFTMAX", "uint8"): (1 / 256, 0),
    ("SOFTMAX", "int16"): (1 / 32768, 0), ("L2_NORMALIZATION", "int8"): (1 / 128, 0),
    ("L2_NORMALIZATION", "uint8"): (1 / 128, 128), ("LOG_SOFTMAX", "int8"): (16 / 256, 127),
}  # fmt: skip
"""Grids that LiteRT's kernels insist on."""

LAYOUTS = {"CAST": "CastOptions", "ARG_MAX": "ArgMaxOptions", "ARG_MIN": "ArgMinOptions",
           "SHAPE": "ShapeOptions"}  # fmt: skip


@dataclass(frozen=True)
class Handle:
    """A tensor of the model: its number, type, and the grid of integers that stand for reals."""

    number: int
    dtype: str
    shape: Shape
    grid: Grid | None


@dataclass
class Model:
    """A model under construction."""

    tensors: list[dict[str, Any]] = field(default_factory=list)
    buffers: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    codes: list[str] = field(default_factory=list)
    operators: list[dict[str, Any]] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    handles: list[Handle] = field(default_factory=list)

    def tensor(
        self, dtype: str, shape: Shape, grid: Grid | None, array: Array | None = None
    ) -> Handle:
        """Add a tensor; a constant, if it has elements."""
        entry: dict[str, Any] = {
            "name": f"t{len(self.tensors)}", "type": NUMBERS[NAMES[DTYPES[dtype]]],
            "shape": list(shape), "has_rank": True,
        }  # fmt: skip
        if grid is not None:
            scale, zero = grid
            entry["quantization"] = {"scale": [scale], "zero_point": [zero]}
        if array is not None:
            entry["buffer"] = len(self.buffers)
            self.buffers.append({"data": np.frombuffer(array.tobytes(), np.uint8)})
        self.tensors.append(entry)
        self.handles.append(Handle(len(self.tensors) - 1, dtype, shape, grid))
        return self.handles[-1]

    def operand(self, value: Any) -> int:
        """Return the number of an operand: literals are constants, None is absent."""
        if value is None:
            return -1
        if isinstance(value, Handle):
            return value.number
        array = np.asarray(value, None if np.size(value) else np.int32)
        array = array.astype(np.float32 if array.dtype.kind == "f" else array.dtype if
                             array.dtype.kind == "b" else np.int32)  # fmt: skip
        return self.tensor(name_of(array), array.shape, None, array).number

    def add(self, kind: str, *operands: Any, out: str = "", n: int = 1, times: float = 1.0,
            grid: Grid | None = None, **options: Any) -> Any:  # fmt: skip
        """Add an operator; return its results."""
        numbers = [self.operand(o) for o in operands]
        first = next(o for o in operands if isinstance(o, Handle))
        if _is_unfit(kind, operands, first):
            raise Declined
        kinds = [k or first.dtype for k in (out or "").split(",")] * (n if "," not in out else 1)
        results = []
        for dtype in kinds:
            at = FIXED.get((kind, dtype))
            if at is None and dtype in QUANTISED:
                at = grid or (first.grid or (0.05, 0))
                at = (at[0] * times, at[1])
            results.append((dtype, at if dtype in QUANTISED else None))
        if kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED") and first.grid is not None:
            self._scale_bias(*numbers[:3])
        entry = self._operator(kind, numbers, options)
        shapes = _typed(self, entry, [i for i in numbers if i >= 0], results)
        made = [self.tensor(t, s, g) for (t, g), s in zip(results, shapes, strict=True)]
        entry["outputs"] = [m.number for m in made]
        self.operators.append(entry)
        return made[0] if len(made) == 1 else tuple(made)

    def _scale_bias(self, x: int, w: int, bias: int) -> None:
        """Give a bias the scale of products."""
        a, b = self.handles[x].grid, self.handles[w].grid
        if bias >= 0 and a is not None and b is not None:
            scale = float(np.float32(a[0]) * np.float32(b[0]))
            self.tensors[bias]["quantization"] = {"scale": [scale], "zero_point": [0]}

    def _operator(
        self, kind: str, numbers: Sequence[int], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        if kind not in self.codes:
            self.codes.append(kind)
        entry: dict[str, Any] = {"opcode_index": self.codes.index(kind), "inputs": list(numbers)}
        known = find(kind, False)
        layout = LAYOUTS.get(kind) or (known.options if known is not None else "")
        if layout:
            second = layout in OPTION_2_NUMBERS
            name = "builtin_options_2" if second else "builtin_options"
            number = (OPTION_2_NUMBERS if second else OPTION_NUMBERS)[layout]
            entry |= {f"{name}_type": number, name: (layout, options)}
        return entry

    def content(self, outputs: Sequence[Handle]) -> bytes:
        """Return the file."""
        graph = {"tensors": self.tensors, "inputs": self.inputs,
                 "outputs": [h.number for h in outputs], "operators": self.operators,
                 "name": "main"}  # fmt: skip
        codes = [{"deprecated_builtin_code": min(CODES[c], 127), "builtin_code": CODES[c],
                  "version": 2 if c == "BROADCAST_TO" else 1} for c in self.codes]  # fmt: skip
        return file_of({"version": 3, "operator_codes": codes, "subgraphs": [graph],
                        "buffers": self.buffers})  # fmt: skip


def _typed(
    model: Model, entry: Mapping[str, Any], numbers: Sequence[int],
    results: Sequence[tuple[str, Grid | None]],
) -> list[Shape]:  # fmt: skip
    """Return the shapes of an operator's results by LiteRT, asked with a model of it alone."""
    alone = Model(list(model.tensors), model.buffers, model.codes)
    made = [alone.tensor(t, (), g) for t, g in results]
    for h in made:
        alone.tensors[h.number] = {**alone.tensors[h.number], "has_rank": False}
    alone.operators = [{**entry, "outputs": [h.number for h in made]}]
    alone.inputs = [i for i in dict.fromkeys(numbers) if "buffer" not in model.tensors[i]]
    it = Interpreter(model_content=alone.content(made), num_threads=1,
                     experimental_op_resolver_type=OpResolverType.BUILTIN_REF)  # fmt: skip
    it.allocate_tensors()
    for d in it.get_input_details():
        it.set_tensor(d["index"], np.ones(d["shape"], d["dtype"]))
    it.invoke()
    return [tuple(map(int, d["shape"])) for d in it.get_output_details()]


def _is_unfit(kind: str, operands: Sequence[Any], first: Handle) -> bool:
    """Return True for operators that LiteRT is known not to compute as it says.

    ATAN2 does not broadcast, but reads on; XNNPACK takes an end of 0 for the end of all; sums of
    integers wrap instead of saturating, and those of i16 are scaled wrongly; quotients of integers
    shift by too many bits where the divisor is far from its zero point.  It dies of empty tensors.
    """
    shapes = {o.shape for o in operands if isinstance(o, Handle)}
    return (
        any(0 in s for s in shapes)
        or (kind == "ATAN2" and len(shapes) > 1)
        or (kind == "STRIDED_SLICE" and 0 in operands[2])
        or (kind in ("SUM", "DIV") and first.grid is not None)
    )


def grid_of(name: str, dtype: str) -> Grid | None:
    """Return the grid of an input: any one, but always the same."""
    if dtype not in QUANTISED:
        return None
    rng = np.random.default_rng(int(name[1:]))
    if name[0] == "w" and dtype == "int8":
        return float(np.float32(rng.choice([0.004, 0.01]))), 0  # as weights have to be
    zeros = {"int8": (-128, 0, 5, 127), "uint8": (0, 128, 255), "int16": (0,)}[dtype]
    scale = float(np.float32(rng.choice([0.02, 0.05, 0.1, 1 / 128])))
    return scale / (256 if dtype == "int16" else 1), int(rng.choice(zeros))


def scope_of(model: Model) -> dict[str, Any]:
    """Return the calls that add operators to a model, by the names of these."""
    found: dict[str, Callable[..., Any]] = {k: partial(model.add, k) for k in CODES}
    return dict(found)


PLAIN = {
    "abs": "ABS", "ceil": "CEIL", "cos": "COS", "elu": "ELU", "floor": "FLOOR", "exp": "EXP",
    "hardswish": "HARD_SWISH", "sigmoid": "LOGISTIC", "neg": "NEG", "relu": "RELU",
    "relu6": "RELU6",
    "round": "ROUND", "sign": "SIGN", "sin": "SIN", "square": "SQUARE", "tanh": "TANH",
    "log": "LOG",
    "sqrt": "SQRT", "rsqrt": "RSQRT", "logical_not": "LOGICAL_NOT", "zeros_like": "ZEROS_LIKE",
    "hardtanh": "RELU_N1_TO_1",
}  # fmt: skip
PAIRS = {"add": "ADD", "sub": "SUB", "mul": "MUL", "div": "DIV"}
SAME = {"max": "MAXIMUM", "min": "MINIMUM", "squared_difference": "SQUARED_DIFFERENCE",
        "remainder": "FLOOR_MOD", "floor_div": "FLOOR_DIV", "pow": "POW", "atan2": "ATAN2",
        "xor": "BITWISE_XOR", "shr": "RIGHT_SHIFT", "logical_and": "LOGICAL_AND",
        "logical_or": "LOGICAL_OR", "prelu": "PRELU"}  # fmt: skip
COMPARED = {"eq": "EQUAL", "ne": "NOT_EQUAL", "lt": "LESS", "le": "LESS_EQUAL", "gt": "GREATER",
            "ge": "GREATER_EQUAL"}  # fmt: skip
REDUCED = {"sum": "SUM", "mean": "MEAN", "amax": "REDUCE_MAX", "amin": "REDUCE_MIN",
           "prod": "REDUCE_PROD", "all": "REDUCE_ALL", "any": "REDUCE_ANY"}  # fmt: skip

SPELLINGS: dict[str, Sequence[str]] = {
    **{n: (f"{k}({{0}}, times={{times}})",) for n, k in PLAIN.items()},
    **{n: (f"{k}({{0}}, {{1}}, fused_activation_function={{act}}, times={{times}})",)
       for n, k in PAIRS.items()},
    **{n: (f"{k}({{0}}, {{1}})",) for n, k in SAME.items()},
    **{n: (f"{k}({{0}}, {{1}}, out='bool')",) for n, k in COMPARED.items()},
    **{n: (f"{k}({{0}}, {{axes}}, keep_dims={{keep}}, times={{times}})",)
       for n, k in REDUCED.items()},
    "gelu": ("GELU({0}, approximate=False)",), "gelu_tanh": ("GELU({0}, approximate=True)",),
    "leaky_relu": ("LEAKY_RELU({0}, alpha=0.3, times={times})", "LEAKY_RELU({0}, alpha=1.5)"),
    "where": ("SELECT_V2({0}, {1}, {2}, out=typed({1}))",),
    "cast": ("CAST({0}, out={dtype})",),
    "argmax": ("ARG_MAX({0}, {axis}, out='int32', output_type=2)",
               "ARG_MAX({0}, {axis}, out='int64', output_type=4)"),
    "argmin": ("ARG_MIN({0}, {axis}, out='int32', output_type=2)",),
    "cumsum": ("CUMSUM({0}, {axis}, exclusive=False, reverse={reverse})",),
    "cumsum_exclusive": ("CUMSUM({0}, {axis}, exclusive=True, reverse={reverse})",),
    "softmax": ("SOFTMAX({0}, beta=1.0)", "SOFTMAX({0}, beta=0.5)"),
    "log_softmax": ("LOG_SOFTMAX({0})",),
    "normalize": ("L2_NORMALIZATION({0})",),
    "topk": ("TOPK_V2({0}, {k}, out=typed({0}) + ',int32')",),
    "reshape": ("RESHAPE({0}, {shape})",), "reshape_open": ("RESHAPE({0}, {shape})",),
    "squeeze": ("SQUEEZE({0}, squeeze_dims=[{axis}])",),
    "squeeze_all": ("SQUEEZE({0}, squeeze_dims=[])",),
    "expand_dims": ("EXPAND_DIMS({0}, {new})",), "unsqueeze": ("EXPAND_DIMS({0}, {new})",),
    "transpose": ("TRANSPOSE({0}, {perm})",),
    "cat": ("CONCATENATION({raw}, axis={axis}, fused_activation_function={act})",
                                                     "CONCATENATION({raw}, axis={axis})"),
    "stack": ("PACK({raw}, values_count=count({raw}), axis={axis})",),
    "unbind": ("UNPACK({0}, num={results}, axis={axis}, n={results})",),
    "split": ("SPLIT_V({0}, sizes({0}, {size}, {axis}), {axis}, num_splits={results}, "
              "n={results})",),
    "tile": ("TILE({0}, {times_each})",), "broadcast_to": ("BROADCAST_TO({0}, {shape})",),
    "flip": ("REVERSE_V2({0}, {axes})",), "narrow": ("SLICE({0}, {begins}, {sizes_to})",),
    "strided_slice": ("STRIDED_SLICE({0}, {begins}, {ends}, {steps})",
                      "STRIDED_SLICE({0}, {begins}, {ends}, {steps}, begin_mask={mask}, "
                      "end_mask={mask2}, "
                      "shrink_axis_mask={mask3})"),
    "pad": ("PAD({0}, {pairs})", "PADV2({0}, {pairs}, filling({0}, {c}))"),
    "pad_reflect": ("MIRROR_PAD({0}, {pairs}, mode=0)",),
    "pad_symmetric": ("MIRROR_PAD({0}, {pairs}, mode=1)",),
    "take": ("GATHER({0}, {1}, axis={axis})",), "index_select": ("GATHER({0}, {1}, axis={axis})",),
    "one_hot": ("ONE_HOT({0}, {n}, 2.5, -1.0, axis=-1, out='float')",),
    "matmul": ("BATCH_MATMUL({0}, {1}, adj_x=False, adj_y=False)",),
    "linear": ("FULLY_CONNECTED({0}, {1}, {2}, fused_activation_function={act}, "
               "keep_num_dims=True)",
               "FULLY_CONNECTED({0}, {1}, None, keep_num_dims=False)"),
    "space_to_depth": ("SPACE_TO_DEPTH({0}, block_size={r})",),
    "depth_to_space": ("DEPTH_TO_SPACE({0}, block_size={r})",),
    "conv_last": ("CONV_2D({0}, {1}, {2}, padding={pad}, stride_h={sh}, stride_w={sw}, "
                  "dilation_h_factor={dh}, "
                  "dilation_w_factor={dw}, fused_activation_function={act}, grid={grid})",),
    "depthwise_last": ("DEPTHWISE_CONV_2D({0}, {1}, {2}, padding={pad}, stride_h={sh}, "
                       "stride_w={sw}, "
                       "depth_multiplier={more}, dilation_h_factor={dh}, dilation_w_factor={dw}, "
                       "fused_activation_function={act}, grid={grid})",),
    "transposed_last": ("TRANSPOSE_CONV({size}, {1}, {0}, padding={pad}, stride_h={sh}, "
                        "stride_w={sw}, out=typed({0}))",),
    **{f"{n}_last": (f"{k}({{0}}, padding={{pad}}, stride_h={{sh}}, stride_w={{sw}}, "
                     f"filter_height={{kh}}, "
                     "filter_width={kw}, fused_activation_function={act})",)
       for n, k in (("max_pool", "MAX_POOL_2D"), ("avg_pool", "AVERAGE_POOL_2D"), ("l2_pool",
       "L2_POOL_2D"))},
    "resize_last": ("RESIZE_BILINEAR({0}, {to}, align_corners={align}, half_pixel_centers={half})",
                    "RESIZE_NEAREST_NEIGHBOR({0}, {to}, align_corners={align}, "
                    "half_pixel_centers={half})"),
    "quantize": ("QUANTIZE({0}, out='int8', grid={grid})",
                 "QUANTIZE({0}, out='uint8', grid={ugrid})"),
    "requantize": ("QUANTIZE({0}, out=typed({0}), times={times})",),
    "dequantize": ("DEQUANTIZE({0}, out='float')",),
    "fake_quant": ("FAKE_QUANT({0}, min=-1.0, max=1.5, num_bits={bits})",),
    "add_n": ("ADD_N({0}, {1})",), "shape": ("SHAPE({0}, out='int32', out_type=2)",),
    "gather_nd": ("GATHER_ND({0}, {1})",),
}  # fmt: skip


def _sizes(x: Handle, size: int, axis: int) -> list[int]:
    n = x.shape[axis]
    return [min(size, n - i) for i in range(0, n, size)]


def _filling(x: Handle, c: int) -> Array:
    return np.array(c, DTYPES[x.dtype])


HELPERS: dict[str, Any] = {"typed": lambda x: x.dtype, "count": lambda *xs: len(xs),
                           "sizes": _sizes, "filling": _filling}  # fmt: skip


class TfliteWriter:
    """Adds lines to one model."""

    dtypes = ("float", "float", "float", "int32", "int64", "bool", "int8", "int8", "uint8", "int16")
    spellings = SPELLINGS

    def __init__(self) -> None:
        self.model = Model()
        self.env: dict[str, Any] = {**scope_of(self.model), **HELPERS}

    def feed(self, name: str, array: Array) -> None:
        self.env[name] = added(self.model, name, array, name[0] == "w")

    def run(self, text: str, results: Sequence[str]) -> list[tuple[str, Shape]] | None:
        """Add the operators of a line."""
        try:
            exec(text, self.env)
        except Exception as error:
            raise Declined from error
        made = [self.env[n] for n in results]
        if not all(isinstance(h, Handle) for h in made):
            return None
        return [(h.dtype, h.shape) for h in made]


def added(model: Model, name: str, array: Array, stored: bool) -> Handle:
    """Add an input or a constant to a model."""
    dtype = name_of(array)
    h = model.tensor(dtype, array.shape, grid_of(name, dtype), array if stored else None)
    if not stored:
        model.inputs.append(h.number)
        model.tensors[h.number]["name"] = name
    return h
