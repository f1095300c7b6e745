"""Texts of programs of one operation of StableHLO or CHLO, over attributes and element types."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

Program = tuple[str, str]
"""A name and a text."""

FLOATS = ("f32", "f64", "f16", "bf16")
INTS = ("i32", "ui32", "i8", "ui8", "i64")


def tensor(dtype: str, *shape: int) -> str:
    return f"tensor<{''.join(f'{d}x' for d in shape)}{dtype}>"


def program(name: str, lines: str, inputs: Sequence[str], *results: str) -> Program:
    """Return a program: `lines` make %0, or %0#0 and so on, of %a, %b, and so on."""
    operands = ", ".join(f"%{letter}: {t}" for letter, t in zip("abcdefgh", inputs, strict=False))
    made = ["%0"] if len(results) == 1 else [f"%0#{i}" for i in range(len(results))]
    return name, (
        f"module @m {{\n  func.func public @main({operands}) -> ({', '.join(results)}) {{\n"
        f"    {lines}\n    return {', '.join(made)} : {', '.join(results)}\n  }}\n}}"
    )


def one(
    name: str, operation: str, inputs: Sequence[str], results: Sequence[str], attributes: str = "",
    regions: str = "", said: str = "",
) -> Program:  # fmt: skip
    """Return a program that is one operation in generic form."""
    letters = ", ".join(f"%{letter}" for letter, _ in zip("abcdefgh", inputs, strict=False))
    made = "%0" if len(results) == 1 else f"%0:{len(results)}"
    line = (
        f"{made} = \"{operation}\"({letters}) {f'({regions}) ' if regions else ''}"
        f"{f'{{{attributes}}} ' if attributes else ''}: "
        f"({', '.join(inputs)}) -> ({', '.join(results)})"
    )
    return program(f"{name}{said and ' ' + said}", line, inputs, *results)


def block(operation: str, dtype: str) -> str:
    """Return the body of a reduction."""
    t = tensor(dtype)
    return (f"{{ ^bb0(%x: {t}, %y: {t}): "
            f"%z = \"stablehlo.{operation}\"(%x, %y) : ({t}, {t}) -> {t} "
            f"\"stablehlo.return\"(%z) : ({t}) -> () }}")  # fmt: skip


# ── by element ──

UNARY = ("ceil", "cosine", "exponential", "exponential_minus_one", "floor", "log", "log_plus_one",
         "logistic", "negate", "abs", "sign", "sine", "sqrt", "rsqrt", "cbrt", "tan", "tanh",
         "round_nearest_afz", "round_nearest_even", "is_finite")  # fmt: skip
OF_CHLO = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i1e", "cosh", "digamma",
           "erf", "erf_inv", "erfc", "is_inf", "is_neg_inf", "is_pos_inf", "lgamma", "sinh",
           "square", "tan", "conj")  # fmt: skip
COMPLEX = ("cosine", "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic",
           "negate", "sign", "sine", "sqrt", "rsqrt", "tanh")  # fmt: skip
BINARY = ("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "power")


def unary() -> Iterator[Program]:
    for space, names in (("stablehlo", UNARY), ("chlo", OF_CHLO)):
        for name, dtype in itertools.product(names, FLOATS):
            result = "i1" if name.startswith("is_") else dtype
            yield one(name, f"{space}.{name}", [tensor(dtype, 6)], [tensor(result, 6)], said=dtype)
    for name in COMPLEX:
        t = tensor("complex<f32>", 6)
        yield one(name, f"stablehlo.{name}", [t], [t], said="c64")
    for name in ("abs", "real", "imag"):
        t = tensor("complex<f32>", 6)
        yield one(name, f"stablehlo.{name}", [t], [tensor("f32", 6)], said="c64")
    for name in ("conj", "square", "acos", "asinh", "sinh", "tan"):
        t = tensor("complex<f32>", 6)
        yield one(name, f"chlo.{name}", [t], [t], said="c64")
    for name, dtype in itertools.product(
        ("abs", "negate", "sign", "not", "popcnt", "count_leading_zeros"), (*INTS, "i16")
    ):
        t = tensor(dtype, 6)
        yield one(name, f"stablehlo.{name}", [t], [t], said=dtype)
    yield one("not", "stablehlo.not", [tensor("i1", 6)], [tensor("i1", 6)], said="i1")


def binary() -> Iterator[Program]:
    for name, dtype in itertools.product(BINARY, ("f32", "bf16", *INTS, "complex<f32>", "i1")):
        t = tensor(dtype, 6)
        if dtype == "complex<f32>" and name in ("remainder", "maximum", "minimum"):
            continue
        if dtype == "i1" and name not in ("add", "multiply", "maximum", "minimum"):
            continue
        yield one(name, f"stablehlo.{name}", [t, t], [t], said=dtype)
    for name, dtype in itertools.product(("and", "or", "xor"), ("i32", "ui8", "i1")):
        t = tensor(dtype, 6)
        yield one(name, f"stablehlo.{name}", [t, t], [t], said=dtype)
    for name, dtype in itertools.product(
        ("shift_left", "shift_right_arithmetic", "shift_right_logical"), (*INTS, "i16", "ui64")
    ):
        t = tensor(dtype, 6)
        yield one(name, f"stablehlo.{name}", [t, t], [t], said=dtype)
    for name, dtype in itertools.product(("stablehlo.atan2", "chlo.next_after"), ("f32", "f64")):
        t = tensor(dtype, 6)
        yield one(name.partition(".")[2], name, [t, t], [t], said=dtype)
    yield one("zeta", "chlo.zeta", [tensor("f32", 6)] * 2, [tensor("f32", 6)])
    for dtype in ("f32", "i32"):
        t = tensor(dtype, 6)
        for low in (t, tensor(dtype)):
            yield one("clamp", "stablehlo.clamp", [low, t, low], [t], said=f"{dtype} {low}")
        for which in (tensor("i1", 6), tensor("i1")):
            yield one("select", "stablehlo.select", [which, t, t], [t], said=f"{dtype} {which}")
    yield one("complex", "stablehlo.complex", [tensor("f32", 6)] * 2, [tensor("complex<f32>", 6)])


DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def compared() -> Iterator[Program]:
    for direction, (dtype, kind) in itertools.product(DIRECTIONS, (
        ("f32", "FLOAT"), ("f32", "TOTALORDER"), ("i32", "SIGNED"), ("ui8", "UNSIGNED"),
        ("i1", "UNSIGNED"), ("complex<f32>", "FLOAT"), ("bf16", "TOTALORDER"),
    )):  # fmt: skip
        if dtype == "complex<f32>" and direction not in ("EQ", "NE"):
            continue
        attributes = (f"comparison_direction = #stablehlo<comparison_direction {direction}>, "
                      f"compare_type = #stablehlo<comparison_type {kind}>")  # fmt: skip
        yield one("compare", "stablehlo.compare", [tensor(dtype, 6)] * 2, [tensor("i1", 6)],
                  attributes, said=f"{direction} {dtype} {kind}")  # fmt: skip
        if kind == "FLOAT":
            attributes = f"comparison_direction = #chlo<comparison_direction {direction}>"
            yield one("broadcast_compare", "chlo.broadcast_compare",
                      [tensor(dtype, 3, 1), tensor(dtype, 4)], [tensor("i1", 3, 4)], attributes,
                      said=f"{direction} {dtype}")  # fmt: skip


def conversions() -> Iterator[Program]:
    every = ("f32", "f64", "bf16", "f16", "i32", "i8", "ui8", "ui32", "i64", "i1", "complex<f32>")
    for source, to in itertools.permutations(every, 2):
        yield one("convert", "stablehlo.convert", [tensor(source, 6)], [tensor(to, 6)],
                  said=f"{source} {to}")  # fmt: skip
    for source, to in (("f32", "i32"), ("i32", "f32"), ("bf16", "i16"), ("ui8", "i8"),
                       ("f64", "i64")):  # fmt: skip
        yield one("bitcast_convert", "stablehlo.bitcast_convert", [tensor(source, 6)],
                  [tensor(to, 6)], said=f"{source} {to}")  # fmt: skip
    for source, to, count in (("i32", "i8", 4), ("f32", "ui16", 2), ("i64", "i32", 2)):
        wide, narrow = tensor(source, 3), tensor(to, 3, count)
        yield one("bitcast_convert", "stablehlo.bitcast_convert", [wide], [narrow],
                  said=f"{source} {to}")  # fmt: skip
        yield one("bitcast_convert", "stablehlo.bitcast_convert", [narrow], [wide],
                  said=f"{to} {source}")  # fmt: skip
    for dtype, exponent, mantissa in itertools.product(("f32", "bf16"), (3, 5, 8), (2, 7)):
        yield one("reduce_precision", "stablehlo.reduce_precision", [tensor(dtype, 6)],
                  [tensor(dtype, 6)], f"exponent_bits = {exponent} : i32, mantissa_bits = "
                  f"{mantissa} : i32", said=f"{dtype} {exponent} {mantissa}")  # fmt: skip


def broadcast_by_chlo() -> Iterator[Program]:
    names = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "remainder",
             "atan2", "and", "or", "xor", "shift_left", "shift_right_arithmetic",
             "shift_right_logical", "next_after")  # fmt: skip
    for name in names:
        dtype = "i32" if name in ("and", "or", "xor") or name.startswith("shift") else "f32"
        for left, right in (((3, 1), (4,)), ((2, 3), ())):
            shape = (3, 4) if right else (2, 3)
            yield one(f"broadcast_{name}", f"chlo.broadcast_{name}",
                      [tensor(dtype, *left), tensor(dtype, *right)], [tensor(dtype, *shape)],
                      said=str(len(right)))  # fmt: skip
    yield one("broadcast_complex", "chlo.broadcast_complex",
              [tensor("f32", 3, 1), tensor("f32", 4)], [tensor("complex<f32>", 3, 4)])  # fmt: skip
    yield one("broadcast_select", "chlo.broadcast_select",
              [tensor("i1", 3, 1), tensor("f32", 4), tensor("f32", 3, 1)],
              [tensor("f32", 3, 4)])  # fmt: skip
    yield one("top_k", "chlo.top_k", [tensor("f32", 3, 7)],
              [tensor("f32", 3, 2), tensor("i32", 3, 2)], "k = 2 : i64")  # fmt: skip


# ── movement ──


def numbers(*values: int) -> str:
    return f"array<i64{': ' if values else ''}{', '.join(map(str, values))}>"


def movements() -> Iterator[Program]:
    x = tensor("f32", 2, 3, 4)
    for perm in itertools.permutations(range(3)):
        shape = [(2, 3, 4)[p] for p in perm]
        yield one("transpose", "stablehlo.transpose", [x], [tensor("f32", *shape)],
                  f"permutation = {numbers(*perm)}", said=str(perm))  # fmt: skip
    for axes in ((0,), (1, 2), (), (0, 2)):
        yield one("reverse", "stablehlo.reverse", [x], [x], f"dimensions = {numbers(*axes)}",
                  said=str(axes))  # fmt: skip
    for (shape, axes) in (((2, 3), (0, 1)), ((2, 3), (0, 2)), ((3,), (1,)), ((4, 2), (2, 0)),
                          ((), ()), ((1, 3), (0, 1)), ((4, 3, 2), (2, 1, 0))):  # fmt: skip
        to = (2, 3) if axes == (0, 1) and shape == (2, 3) else (2, 3, 4)
        to = (2, 3, 3) if axes == (0, 2) else to
        yield one("broadcast_in_dim", "stablehlo.broadcast_in_dim", [tensor("f32", *shape)],
                  [tensor("f32", *to)], f"broadcast_dimensions = {numbers(*axes)}",
                  said=f"{shape} {axes}")  # fmt: skip
    for axis, dtype in itertools.product(range(3), ("i32", "f32", "ui8", "complex<f32>")):
        yield one("iota", "stablehlo.iota", [], [tensor(dtype, 2, 3, 4)],
                  f"iota_dimension = {axis} : i64", said=f"{axis} {dtype}")  # fmt: skip
    for axis in range(3):
        shape = [d * (2 if i == axis else 1) for i, d in enumerate((2, 3, 4))]
        yield one("concatenate", "stablehlo.concatenate", [x, x], [tensor("f32", *shape)],
                  f"dimension = {axis} : i64", said=str(axis))  # fmt: skip
        yield one("get_dimension_size", "stablehlo.get_dimension_size", [x], [tensor("i32")],
                  f"dimension = {axis} : i64", said=str(axis))  # fmt: skip
    for starts, limits, steps, shape in (
        ((0, 1, 2), (2, 3, 4), (1, 1, 1), (2, 2, 2)), ((1, 0, 0), (2, 3, 4), (1, 2, 3), (1, 2, 2)),
        ((0, 0, 0), (2, 3, 4), (1, 1, 1), (2, 3, 4)),
    ):  # fmt: skip
        yield one("slice", "stablehlo.slice", [x], [tensor("f32", *shape)],
                  f"start_indices = {numbers(*starts)}, limit_indices = {numbers(*limits)}, "
                  f"strides = {numbers(*steps)}", said=str(starts))  # fmt: skip
    for low, high, within, shape in (
        ((1, 0), (0, 2), (0, 0), (4, 6)), ((0, 2), (3, 1), (1, 0), (8, 7)),
        ((-1, 0), (0, -2), (0, 0), (2, 2)), ((1, -1), (2, 0), (2, 1), (10, 6)),
    ):  # fmt: skip
        for dtype in ("f32", "i32"):
            yield one("pad", "stablehlo.pad", [tensor(dtype, 3, 4), tensor(dtype)],
                      [tensor(dtype, *shape)],
                      f"edge_padding_low = {numbers(*low)}, edge_padding_high = {numbers(*high)}, "
                      f"interior_padding = {numbers(*within)}", said=f"{low} {dtype}")  # fmt: skip
    yield one("reshape", "stablehlo.reshape", [x], [tensor("f32", 6, 4)])
    for sizes in ((1, 2, 4), (2, 3, 1)):
        index = tensor("i32")
        yield one("dynamic_slice", "stablehlo.dynamic_slice", [x, index, index, index],
                  [tensor("f32", *sizes)], f"slice_sizes = {numbers(*sizes)}",
                  said=str(sizes))  # fmt: skip
        yield one("dynamic_update_slice", "stablehlo.dynamic_update_slice",
                  [x, tensor("f32", *sizes), index, index, index], [x],
                  said=str(sizes))  # fmt: skip


# ── sums, sorts, transforms ──


def reductions() -> Iterator[Program]:
    names = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
    for name, dtype in itertools.product(names, ("f32", "i32", "i1", "complex<f32>", "bf16")):
        bits = name in ("and", "or", "xor")
        ordered = name in ("maximum", "minimum")
        if (bits and dtype not in ("i32", "i1")) or (ordered and dtype == "complex<f32>"):
            continue
        for axes, shape in (((0,), (3, 4)), ((1, 2), (2,)), ((0, 1, 2), ())):
            yield one("reduce", "stablehlo.reduce", [tensor(dtype, 2, 3, 4), tensor(dtype)],
                      [tensor(dtype, *shape)], f"dimensions = {numbers(*axes)}",
                      block(name, dtype), f"{name} {dtype} {axes}")  # fmt: skip
    for name, (size, strides, spread), edges in itertools.product(
        ("add", "maximum", "multiply"), (((1, 2), (1, 1), (1, 1)), ((2, 2), (2, 1), (1, 2))),
        ((0, 0, 0, 0), (1, 0, 0, 2)),
    ):  # fmt: skip
        rows = (4 + edges[0] + edges[1] - ((size[0] - 1) * spread[0] + 1)) // strides[0] + 1
        columns = (5 + edges[2] + edges[3] - ((size[1] - 1) * spread[1] + 1)) // strides[1] + 1
        attributes = (
            f"window_dimensions = {numbers(*size)}, window_strides = {numbers(*strides)}, "
            f"window_dilations = {numbers(*spread)}, "
            f"padding = dense<[[{edges[0]}, {edges[1]}], [{edges[2]}, {edges[3]}]]> : "
            "tensor<2x2xi64>"
        )
        yield one("reduce_window", "stablehlo.reduce_window", [tensor("f32", 4, 5), tensor("f32")],
                  [tensor("f32", rows, columns)], attributes, block(name, "f32"),
                  f"{name} {size} {edges}")  # fmt: skip


def sorts() -> Iterator[Program]:
    for direction, dtype, axis, stable in itertools.product(
        ("LT", "GT", "LE", "GE"), ("f32", "i32"), (0, 1), ("true",)
    ):
        kind = "TOTALORDER" if dtype == "f32" and direction in ("LT", "GT") else (
            "FLOAT" if dtype == "f32" else "SIGNED")  # fmt: skip
        t = tensor(dtype)
        body = (f"{{ ^bb0(%x: {t}, %y: {t}): %z = \"stablehlo.compare\"(%x, %y) "
                f"{{comparison_direction = #stablehlo<comparison_direction {direction}>, "
                f"compare_type = #stablehlo<comparison_type {kind}>}} : ({t}, {t}) -> tensor<i1> "
                "\"stablehlo.return\"(%z) : (tensor<i1>) -> () }")  # fmt: skip
        yield one("sort", "stablehlo.sort", [tensor(dtype, 4, 5)], [tensor(dtype, 4, 5)],
                  f"dimension = {axis} : i64, is_stable = {stable}", body,
                  f"{direction} {dtype} {axis}")  # fmt: skip


def transforms() -> Iterator[Program]:
    kinds = ("FFT", "IFFT", "RFFT", "IRFFT")
    for kind, lengths in itertools.product(kinds, ((6,), (4, 6), (3, 6))):
        rest = lengths[:-1]
        real, half = tensor("f32", 2, *rest, 6), tensor("complex<f32>", 2, *rest, 4)
        whole = tensor("complex<f32>", 2, *rest, 6)
        source, to = {"FFT": (whole, whole), "IFFT": (whole, whole), "RFFT": (real, half),
                      "IRFFT": (half, real)}[kind]  # fmt: skip
        yield one("fft", "stablehlo.fft", [source], [to],
                  f"fft_type = #stablehlo<fft_type {kind}>, fft_length = {numbers(*lengths)}",
                  said=f"{kind} {lengths}")  # fmt: skip
    for axis, epsilon in itertools.product((0, 1, 3), (1e-5, 0.5)):
        shape = (3, 2, 4, 5)
        x, by = tensor("f32", *shape), tensor("f32", shape[axis])
        attributes = f"epsilon = {epsilon:e} : f32, feature_index = {axis} : i64"
        said = f"{axis} {epsilon}"
        yield one("batch_norm_inference", "stablehlo.batch_norm_inference",
                  [x, by, by, by, by], [x], attributes, said=said)  # fmt: skip
        yield one("batch_norm_training", "stablehlo.batch_norm_training", [x, by, by], [x, by, by],
                  attributes, said=said)  # fmt: skip
        yield one("batch_norm_grad", "stablehlo.batch_norm_grad", [x, by, by, by, x], [x, by, by],
                  attributes, said=said)  # fmt: skip
    for left, lower, unit, turned in itertools.product(
        ("true", "false"), ("true", "false"), ("true", "false"),
        ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    ):  # fmt: skip
        b = tensor("f32", 3, 2) if left == "true" else tensor("f32", 2, 3)
        yield one("triangular_solve", "stablehlo.triangular_solve", [tensor("f32", 3, 3), b], [b],
                  f"left_side = {left}, lower = {lower}, unit_diagonal = {unit}, transpose_a = "
                  f"#stablehlo<transpose {turned}>",
                  said=f"{left} {lower} {unit} {turned}")  # fmt: skip


PROGRAMS = (unary, binary, compared, conversions, broadcast_by_chlo, movements, reductions, sorts,
            transforms)  # fmt: skip
