"""Cases of operators that have no window: elementwise, reductions, products, movements and more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from cliff_draw import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    SMALL,
    U8,
    Array,
    Case,
    Draw,
    family,
    ints,
)

UNARY: dict[str, tuple[str | None, str | None, str]] = {
    "Abs": ("abs", "abs", "any"),
    "Neg": ("negative", "neg", "any"),
    "Sign": ("sign", "sign", "any"),
    "Relu": (None, "relu", "any"),
    "Exp": ("exp", "exp", "any"),
    "Log": ("log", "log", "positive"),
    "Sqrt": ("sqrt", "sqrt", "positive"),
    "Reciprocal": ("reciprocal", "reciprocal", "positive"),
    "Sin": ("sin", "sin", "any"),
    "Cos": ("cos", "cos", "any"),
    "Tan": ("tan", "tan", "positive"),
    "Asin": ("arcsin", "asin", "unit"),
    "Acos": ("arccos", "acos", "unit"),
    "Atan": ("arctan", "atan", "any"),
    "Sinh": ("sinh", "sinh", "any"),
    "Cosh": ("cosh", "cosh", "any"),
    "Tanh": ("tanh", "tanh", "any"),
    "Asinh": ("arcsinh", "asinh", "any"),
    "Acosh": ("arccosh", "acosh", "above"),
    "Atanh": ("arctanh", "atanh", "unit"),
    "Sigmoid": (None, "sigmoid", "any"),
    "Erf": (None, "erf", "any"),
    "Floor": ("floor", "floor", "any"),
    "Ceil": ("ceil", "ceil", "any"),
    "Round": ("round", "round", "any"),
    "IsNaN": ("isnan", "isnan", "any"),
    "IsInf": ("isinf", "isinf", "any"),
    "Elu": (None, "nn.functional.elu", "any"),
    "Selu": (None, "selu", "any"),
    "Celu": (None, "nn.functional.celu", "any"),
    "Softplus": (None, "nn.functional.softplus", "any"),
    "Softsign": (None, "nn.functional.softsign", "any"),
    "HardSwish": (None, "nn.functional.hardswish", "any"),
    "Gelu": (None, "nn.functional.gelu", "any"),
    "Mish": (None, "nn.functional.mish", "any"),
    "HardSigmoid": (None, None, "any"),
    "LeakyRelu": (None, "nn.functional.leaky_relu", "any"),
    "ThresholdedRelu": (None, None, "any"),
    "Shrink": (None, None, "any"),
    "Not": ("logical_not", "logical_not", "bool"),
    "BitwiseNot": ("invert", "bitwise_not", "int"),
}
"""NumPy's name, PyTorch's name, and the numbers that an operator takes."""

INTEGER = ("Abs", "Neg", "Sign", "Relu")


def in_torch(name: str) -> Callable[..., Any]:
    """Return a caller of one of PyTorch's functions."""

    def call(torch: Any, *tensors: Any) -> Any:
        function = torch
        for part in name.split("."):
            function = getattr(function, part)
        return function(*tensors)

    return call


def partly(name: str, *arguments: Any, given: int = 1) -> Callable[..., Any]:
    """Return a caller of one of `torch.nn.functional` with the first operands and arguments."""
    return lambda t, *x: in_torch(f"nn.functional.{name}")(t, *x[:given], *arguments)


def takes(op: str, dtype: np.dtype[Any]) -> bool:
    """Return True if the first operand of an operator of opset 22 may have an element type."""
    schema = onnx.defs.get_schema(op, 22)
    word = onnx.helper.tensor_dtype_to_string(onnx.helper.np_dtype_to_tensor_dtype(dtype))
    kind = word.removeprefix("TensorProto.").lower()
    return f"tensor({kind})" in schema.inputs[0].types


@family(12, *UNARY)
def unary(d: Draw, op: str) -> Case:
    of_numpy, of_torch, kind = UNARY[op]
    dtype = {"bool": BOOL, "int": d.choice((I8, U8, I32, I64))}.get(kind) or d.float_type()
    if op in INTEGER and d.chance() < 0.2:
        dtype = d.choice((I8, I32, I64))
    if not takes(op, dtype):
        dtype = F32
    shape = d.shape()
    x = d.positive(shape, dtype) if kind == "positive" else d.array(shape, dtype)
    if kind == "unit":
        x = (d.numbers.random(shape, np.float32) * 1.8 - 0.9).astype(dtype)
    if kind == "above":
        x = (d.positive(shape) + 1).astype(dtype)
    if op == "Selu" and dtype == F64:
        of_torch = None  # ONNX has its constants as f32
    return Case(
        op, (x,), numpy=getattr(np, of_numpy) if of_numpy else None,
        torch=in_torch(of_torch) if of_torch else None, opset=22,
    )  # fmt: skip


BINARY = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide", "Pow": "pow",
    "Min": "minimum", "Max": "maximum", "Equal": "eq", "Less": "less", "Greater": "greater",
    "LessOrEqual": "less_equal", "GreaterOrEqual": "greater_equal", "And": "logical_and",
    "Or": "logical_or", "Xor": "logical_xor", "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "BitShift": "bitwise_right_shift",
    "Mod": "fmod", "PRelu": "",
}  # fmt: skip
"""Operators of two operands, and their names in PyTorch."""


def broadcast(d: Draw, shape: list[int]) -> list[int]:
    """Return a shape that broadcasts to another: equal, a scalar, a row, a column or a channel."""
    fate = d.chance()
    if fate < 0.3:
        return list(shape)
    if fate < 0.4:
        return [1] * d.between(0, len(shape))
    if fate < 0.7:
        return shape[d.axis(len(shape)) :]
    return [n if d.chance() < 0.5 else 1 for n in shape]


@family(14, *BINARY)
def binary(d: Draw, op: str) -> Case:
    dtype = d.float_type() if d.chance() < 0.75 else d.choice((I32, I64))
    if op in ("And", "Or", "Xor"):
        dtype = BOOL
    if op.startswith("Bitwise") or op == "BitShift":
        dtype = U8 if op == "BitShift" else d.choice((I8, U8, I32, I64))
    if op == "PRelu":
        dtype = d.choice((F32, F32, F16))
    shape = d.shape()
    x, other = d.array(shape, dtype), broadcast(d, shape)
    one_sided = op in ("Div", "Pow", "Mod", "BitShift")
    y = d.positive(other, dtype) if one_sided else d.array(other, dtype)
    operands = [x, y]
    if op == "Pow":
        operands[0] = d.positive(shape, dtype)
        if d.chance() < 0.3:
            operands[1] = np.full((), d.choice((2, 3, 0.5)), dtype)
    attributes: dict[str, Any] = {"direction": "RIGHT"} if op == "BitShift" else {}
    if op == "Mod":
        attributes = {"fmod": int(dtype.kind not in "iu")}
        if not attributes["fmod"]:
            operands[0] = d.positive(shape, dtype)
    swapped = not one_sided and op != "PRelu" and d.chance() < 0.3
    if swapped:
        operands.reverse()
    name = BINARY[op]
    integer_quotient = op == "Div" and dtype.kind in "iu"
    of_numpy = getattr(np, {"eq": "equal", "pow": "power"}.get(name, name), None) if name else None
    if op == "BitShift":
        of_numpy = np.right_shift
    return Case(
        op, tuple(operands), attributes, d.some(0 if swapped else 1),
        numpy=None if integer_quotient or dtype == BF16 else of_numpy,
        torch=in_torch(name) if name and not integer_quotient else None, opset=22,
    )  # fmt: skip


@family(3, "Where")
def where(d: Draw, op: str) -> Case:
    dtype, shape = d.any_type(), d.shape()
    shapes = [shape, broadcast(d, shape), broadcast(d, shape)]
    d.random.shuffle(shapes)
    operands = (d.array(shapes[0], BOOL), d.array(shapes[1], dtype), d.array(shapes[2], dtype))
    return Case(op, operands, constants=d.some(2), numpy=np.where, torch=in_torch("where"))


@family(2, "Clip")
def clip(d: Draw, op: str) -> Case:
    dtype = d.choice((F32, F32, F32, F16, F64, I8, U8, I32, I64))
    bounds = np.array(0 if dtype.kind == "u" else -1, dtype), np.array(3, dtype)
    return Case(
        op, (d.array(d.shape(), dtype), *bounds), {}, d.some(1, 2), numpy=np.clip,
        torch=in_torch("clamp"),
    )  # fmt: skip


@family(2, "Sum", "Mean")
def variadic(d: Draw, op: str) -> Case:
    shape = d.shape()
    operands = [d.array(shape), *(d.array(broadcast(d, shape)) for _ in range(d.between(1, 4)))]
    return Case(op, tuple(operands))


@family(4, "Cast")
def cast(d: Draw, op: str) -> Case:
    types = (F32, F32, F32, F16, BF16, F64, I8, U8, I32, I64, BOOL)
    names = {F32: "float32", F16: "float16", BF16: "bfloat16", F64: "float64", I8: "int8",
             U8: "uint8", I32: "int32", I64: "int64", BOOL: "bool"}  # fmt: skip
    codes = {F32: 1, U8: 2, I8: 3, I32: 6, I64: 7, BOOL: 9, F16: 10, F64: 11, BF16: 16}
    before = d.choice(types)
    after = d.choice([t for t in types if t != before])
    x = d.positive(d.shape(), before)
    return Case(
        op, (x,), {"to": codes[after]}, numpy=lambda x: x.astype(after),
        torch=lambda t, x: x.to(getattr(t, names[after])),
    )  # fmt: skip


REDUCTIONS = {
    "ReduceSum": ("sum", "sum"), "ReduceMean": ("mean", "mean"), "ReduceMax": ("max", "amax"),
    "ReduceMin": ("min", "amin"), "ReduceProd": ("prod", None), "ReduceL1": (None, None),
    "ReduceL2": (None, "norm"), "ReduceSumSquare": (None, None), "ReduceLogSum": (None, None),
    "ReduceLogSumExp": (None, "logsumexp"),
}  # fmt: skip


@family(12, *REDUCTIONS)
def reduction(d: Draw, op: str) -> Case:
    of_numpy, of_torch = REDUCTIONS[op]
    dtype = d.float_type()
    if op in ("ReduceMax", "ReduceMin", "ReduceSum") and d.chance() < 0.25:
        dtype = d.choice((I32, I64, I8, U8) if op != "ReduceSum" else (I32, I64))
    shape = d.shape((1, 2, 3, 4))
    axes = sorted(d.random.sample(range(len(shape)), d.between(1, len(shape))))
    keep = d.chance() < 0.5
    x = d.positive(shape, dtype)
    if op == "ReduceProd":
        x = (1 + (x - 0.6) * 1e-3).astype(dtype)
    numpy_call = getattr(np, of_numpy) if of_numpy else None

    def torched(t: Any, x: Any, _: Any) -> Any:
        if of_torch == "norm":
            return t.linalg.vector_norm(x, 2, axes, keep)
        return getattr(t, str(of_torch))(x, axes, keep)

    return Case(
        op, (x, ints(*axes)), {"keepdims": int(keep)}, frozenset([1]),
        numpy=(lambda x, _: numpy_call(x, axis=tuple(axes), keepdims=keep)) if numpy_call else None,
        torch=torched if of_torch else None,
    )  # fmt: skip


@family(4, "ArgMax", "ArgMin")
def extremum(d: Draw, op: str) -> Case:
    dtype = d.choice((F32, F32, F32, F64, F16, I8, U8, I32))
    shape = d.shape()
    axis, keep, last = d.axis(len(shape)), d.chance() < 0.5, d.chance() < 0.2
    attributes = {"axis": axis, "keepdims": int(keep), "select_last_index": int(last)}
    name = op.lower()
    return Case(
        op, (d.array(shape, dtype),), attributes,
        numpy=None if last else lambda x: getattr(np, name)(x, axis=axis, keepdims=keep),
        torch=None if last else lambda t, x: getattr(t, name)(x, axis, keep),
    )  # fmt: skip


@family(4, "CumSum")
def cumulated(d: Draw, op: str) -> Case:
    shape, dtype = d.shape(), d.choice((F32, F32, F32, F64, I32, I64))
    axis, plain = d.axis(len(shape)), d.chance() < 0.6
    attributes = {} if plain else {"exclusive": d.between(0, 1), "reverse": d.between(0, 1)}
    plain = not any(attributes.values())
    return Case(
        op, (d.array(shape, dtype), np.array(axis)), attributes, frozenset([1]),
        numpy=(lambda x, _: np.cumsum(x, axis, dtype)) if plain else None,
        torch=(lambda t, x, _: t.cumsum(x, axis, dtype=x.dtype)) if plain else None,
    )  # fmt: skip


@family(6, "Softmax", "LogSoftmax", "Hardmax")
def softmax(d: Draw, op: str) -> Case:
    shape = d.shape()
    axis = d.axis(len(shape)) if d.chance() < 0.5 else len(shape) - 1
    name = {"Softmax": "softmax", "LogSoftmax": "log_softmax"}.get(op)
    return Case(
        op, (d.array(shape, d.float_type()),), {"axis": axis},
        torch=(lambda t, x: getattr(t, name)(x, axis)) if name else None,
    )  # fmt: skip


@family(8, "LayerNormalization", "GroupNormalization", "InstanceNormalization",
        "BatchNormalization", "RMSNormalization", "LpNormalization", "MeanVarianceNormalization",
        "LRN")  # fmt: skip
def normalization(d: Draw, op: str) -> Case:
    dtype = d.choice((F32, F32, F32, F32, F16))
    shape = d.shape((2, 3, 4) if op in ("LayerNormalization", "RMSNormalization") else (3, 4))
    x, n = d.array(shape, dtype), shape[1]
    scale, bias = d.positive([n], dtype), d.array([n], dtype)
    attributes: dict[str, Any] = {}
    match op:
        case "LayerNormalization" | "RMSNormalization":
            return _row_normalization(d, op, x)
        case "GroupNormalization":
            groups = d.choice([g for g in range(1, n + 1) if n % g == 0])
            attributes = {"num_groups": groups}
            torched = _before_scale("group_norm", groups)
        case "InstanceNormalization":
            torched = _before_scale("instance_norm", None, None)
        case "BatchNormalization":
            operands = (x, scale, bias, d.array([n], dtype), d.positive([n], dtype))
            return Case(
                op, operands, {}, frozenset([1, 2, 3, 4]),
                torch=lambda t, x, s, b, m, v: t.nn.functional.batch_norm(x, m, v, s, b),
            )  # fmt: skip
        case "LRN":
            size = d.choice((3, 5, 7))
            x = d.array(d.shape((4,)))
            return Case(op, (x,), {"size": size}, torch=partly("local_response_norm", size))
        case "LpNormalization":
            axis, p = d.axis(len(shape)), d.between(1, 2)
            return Case(op, (x,), {"axis": axis, "p": p}, torch=partly("normalize", float(p), axis))
        case _:
            axes = sorted(d.random.sample(range(len(shape)), 2))
            return Case(op, (d.array(shape),), {"axes": axes})
    return Case(op, (x, scale, bias), attributes, frozenset([1, 2]), torch=torched)


def _before_scale(name: str, *arguments: Any) -> Callable[..., Any]:
    """Return a caller of a normalization whose scale and bias come last."""
    return lambda t, x, *scale: getattr(t.nn.functional, name)(x, *arguments, *scale)


def _row_normalization(d: Draw, op: str, x: Array) -> Case:
    axis = d.between(1, x.ndim - 1)
    rest = list(x.shape[axis:])
    scale = d.positive(rest, x.dtype)
    if op == "RMSNormalization":
        return Case(
            op, (x, scale), {"axis": axis}, frozenset([1]), opset=23,
            torch=lambda t, x, s: t.nn.functional.rms_norm(x, rest, s, 1e-5),
        )  # fmt: skip
    operands = (x, scale, d.array(rest, x.dtype))
    torched = _before_scale("layer_norm", rest)
    return Case(op, operands, {"axis": axis}, frozenset([1, 2]), torch=torched)


def product(d: Draw) -> list[int]:
    """Return rows, columns and the length of sums, of about as many multiply-adds as are drawn."""
    m, n, k = d.split(d.work(), 3)
    if d.chance() < 0.3:
        few = d.choice((1, 1, 2, 3, 5, 8))
        side = d.between(0, 2)
        extents = d.split(d.work(18, 24), 2)
        extents.insert(side, few)
        m, n, k = extents
    m, n, k = (min(e, 8192) for e in (m, n, k))
    return [m, n, k] if max(m * k, k * n, m * n) <= 1 << 22 else product(d)


@family(12, "MatMul")
def matmul(d: Draw, op: str) -> Case:
    m, n, k = product(d)
    dtype = d.random.choices((F32, F64, F16, BF16, I32), (80, 6, 6, 4, 4))[0]
    left, right = [m, k], [k, n]
    fate = d.chance()
    if fate < 0.4:
        batch = [d.log(1, 16) for _ in range(d.between(1, 2))]
        left = [*batch, *left]
        if d.chance() < 0.6:
            right = [*batch, *right] if d.chance() < 0.7 else [*([1] * len(batch)), *right]
    elif fate < 0.5:
        left = [k]
    elif fate < 0.6:
        right = [k]
    return Case(
        op, (d.array(left, dtype, 9), d.array(right, dtype, 9)), {}, d.some(1), numpy=np.matmul,
        torch=in_torch("matmul"),
    )  # fmt: skip


@family(7, "Gemm")
def gemm(d: Draw, op: str) -> Case:
    m, n, k = product(d)
    a, b = d.between(0, 1), d.between(0, 1)
    dtype = d.random.choices((F32, F64, F16), (85, 8, 7))[0]
    attributes: dict[str, Any] = {"transA": a, "transB": b}
    if d.chance() < 0.3:
        attributes |= {"alpha": 0.5, "beta": 2.0}
    c = d.choice(([n], [m, n], [1, n], [m, 1], [], None))
    operands = [d.array([k, m] if a else [m, k], dtype), d.array([n, k] if b else [k, n], dtype)]
    if c is not None:
        operands.append(d.array(c, dtype))

    def torched(t: Any, x: Any, y: Any, *c: Any) -> Any:
        x, y = x.T if a else x, y.T if b else y
        alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
        return t.addmm(c[0], x, y, alpha=alpha, beta=beta) if c else t.mm(x, y) * alpha

    return Case(op, tuple(operands), attributes, d.some(1), torch=torched)


EQUATIONS = (
    "ij,jk->ik", "ij,kj->ik", "ji,jk->ik", "ij,jk->ki", "bij,bjk->bik", "bij,bkj->bik",
    "bji,bjk->bik", "bhid,bhjd->bhij", "bihd,bjhd->bhij", "bhij,bjhd->bihd", "i,j->ij", "ij,ij->i",
    "ij,ij->ij", "ij,j->i", "ij,i->j", "bij,j->bi", "bij->bji", "ij->j", "bij->b", "bn,anm,bm->ba",
    "bchw,bkhw->bck", "nchw,oc->nohw", "nhwc,co->nhwo", "ij,ik->jk", "bi,bj->bij", "abc,cd->abd",
    "abc,adc->abd", "bij,bij->b", "bij,ij->b", "ii->i", "bct,ctd->bd", "abcd,abed->ace",
)  # fmt: skip


@family(6, "Einsum")
def einsum(d: Draw, op: str) -> Case:
    equation = d.choice(EQUATIONS)
    terms = equation.split("->")[0].split(",")
    letters = sorted(set("".join(terms)))
    extents = dict(zip(letters, d.split(d.work(17, 24), len(letters)), strict=True))
    if max(np.prod([float(extents[c]) for c in t]) for t in terms) > 1 << 22:
        return einsum(d, op)
    operands = tuple(d.array([extents[c] for c in t]) for t in terms)
    return Case(
        op, operands, {"equation": equation}, torch=lambda t, *x: t.einsum(equation, *x).clone()
    )


@family(5, "MatMulInteger", "QLinearMatMul", "DynamicQuantizeMatMul", "MatMulNBits")
def quantized_product(d: Draw, op: str) -> Case:
    m, n, k = product(d)
    if op == "MatMulNBits":
        block = d.choice((32, 64, 128))
        k = max(block, k // block * block)
        packed = d.array([n, k // block, block // 2], U8, 256)
        scales = d.positive([n * (k // block)])
        attributes = {"K": k, "N": n, "bits": 4, "block_size": block}
        operands: tuple[Array | None, ...] = (d.array([m, k]), packed, scales)
        return Case(op, operands, attributes, frozenset([1, 2]), domain="com.microsoft")
    if op == "DynamicQuantizeMatMul":
        operands = (d.array([m, k]), d.array([k, n], I8, SMALL), np.array(0.02, F32))
        return Case(op, operands, {}, frozenset([1, 2]), domain="com.microsoft", ties=True)
    a, b = d.array([m, k], U8, 256), d.array([k, n], d.choice((I8, U8)), SMALL)
    zeros = np.array(d.choice((0, 128)), U8), np.array(d.choice((0, 3)), b.dtype)
    if op == "MatMulInteger":
        return Case(op, (a, b, *zeros), {}, frozenset([2, 3]) | d.some(1))
    scale = np.array(0.02, F32)
    end = np.array(2.0 * k**0.5, F32), np.array(120, U8)
    operands = (a, scale, zeros[0], b, scale, zeros[1], *end)
    return Case(op, operands, {}, frozenset([1, 2, 4, 5, 6, 7]) | d.some(3), ties=True)


@family(5, "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearAdd",
        "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu")  # fmt: skip
def quantization(d: Draw, op: str) -> Case:
    shape, code = d.shape((2, 3, 4)), d.choice((I8, U8))
    if op == "DynamicQuantizeLinear":
        return Case(op, (d.array(shape),), results=3, ties=True)
    scale, zero = np.array(0.0317, F32), np.array(3, code)
    if op.startswith("QLinear"):
        x, about = d.array(shape, code), (scale, zero)
        if op in ("QLinearAdd", "QLinearMul"):
            y = d.array(broadcast(d, shape), code)
            operands: tuple[Array | None, ...] = (x, *about, y, *about, *about)
            constant = frozenset([1, 2, 4, 5, 6, 7])
        else:
            operands, constant = (x, *about, *about), frozenset([1, 2, 3, 4])
        return Case(op, operands, {}, constant, domain="com.microsoft", ties=True)
    axis, attributes = d.axis(len(shape)), {}
    if d.chance() < 0.5:
        attributes = {"axis": axis}
        scale, zero = d.positive([shape[axis]]), d.array([shape[axis]], code, 9)
    x = d.array(shape, code) if op == "DequantizeLinear" else d.array(shape)
    return Case(op, (x, scale, zero), attributes, frozenset([1, 2]), ties=op == "QuantizeLinear")
