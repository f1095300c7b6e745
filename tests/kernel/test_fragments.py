"""Fragments of matrices: what NumPy says, as units of matrices and as arrays of threads."""

from __future__ import annotations

import numpy as np
import pytest

from alpenglow.base.errors import AlpenglowError, KernelError
from alpenglow.kernel.bounds import accesses
from alpenglow.kernel.build import Builder
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.expr import Const
from alpenglow.kernel.fragments import Mma, Tile
from alpenglow.kernel.inequality import Premises
from alpenglow.kernel.legalise import Lacks, legalise
from alpenglow.kernel.races import RaceError
from alpenglow.kernel.sums import number
from alpenglow.kernel.text import parse_kernel, print_kernel
from group_kernels import PRODUCT, integer_product, product, products
from kernel_cases import Case
from loop_kernels import same_bits

CASES = list(products())


def results(case: Case, lacks: Lacks | None = None) -> np.ndarray:
    operands = {name: a.copy() for name, a in case.operands.items()}
    kernel = case.kernel if lacks is None else legalise(case.kernel, lacks)
    evaluate(kernel, operands, case.extents)
    return operands["z"]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("subgroup", [8, 1])
def test_products_are_what_numpy_says(dtype: str, subgroup: int) -> None:
    case = product(dtype, subgroup)
    x = case.operands["x"].astype(np.float32).reshape(32, 48)
    y = case.operands["y"].astype(np.float32).reshape(48, 4)
    z = (x @ y + np.float32(0.5)).reshape(4, 8, 4)
    z = np.where(z > 0, z, -z * z)

    expected = z + (z + x[:8, :16] @ y[:16])
    assert (results(case).reshape(4, 8, 4) == expected).all()


@pytest.mark.parametrize("left", ["u8", "i8"])
def test_products_of_bytes_are_exact(left: str) -> None:
    case = integer_product(left)
    x, y = (case.operands[n].astype(np.int32) for n in ("x", "y"))

    assert (results(case).reshape(8, 8) == 1 + x.reshape(8, 16) @ y.reshape(16, 8)).all()


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("lacks", [Lacks(tiles=True), Lacks(tiles=True, subgroups=True)])
@pytest.mark.sampled(3)
def test_arrays_of_threads_hold_the_same_bits(number: int, lacks: Lacks) -> None:
    case = CASES[number]
    plain = legalise(case.kernel, lacks)

    assert same_bits(results(case), results(case, lacks))
    assert parse_kernel(print_kernel(plain)) and "mma" not in print_kernel(plain)
    assert legalise(plain, lacks) is plain


def test_sums_are_those_of_fmas_in_order() -> None:
    rng = np.random.default_rng(0)
    case = product()
    case.operands["x"][:] = rng.standard_normal(32 * 48)
    case.operands["y"][:] = rng.standard_normal(48 * 4)

    assert same_bits(results(case), results(case, Lacks(tiles=True)))


def test_a_fragment_has_its_text() -> None:
    text = PRODUCT.replace("TYPE", "bf16")

    assert print_kernel(parse_kernel(text)) == text


def test_a_fragment_is_built() -> None:
    b = Builder("k")
    x, z = b.buffer("x", "f32"), b.buffer("z", "f32", mutable=True)
    acc = b.var(Const(1.0, "f32", 4, (2, 2)))
    tile = Tile(x, Const(0), Const(2), (2, 2))
    b.set(acc, Mma(acc, tile, tile))
    b.store_tile(z, 0, 2, acc)
    z_values = np.zeros(4, np.float32)
    evaluate(b.done(), {"x": np.arange(4, dtype=np.float32), "z": z_values})

    assert z_values.tolist() == [3, 4, 7, 12]
    assert parse_kernel(print_kernel(b.done()))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("0.5:f32[8x4]", "0.5:f32[4x8]", r"f32\[8x4\] with f32\[4x8\]"),
        ("r5: TYPE[8x16] = x.8x16", "r5: TYPE[16x8] = x.16x8", "mma of"),
        ("mma(r3, r5, a0.16x4[i1*128, 4])", "reduce.add(r3)", "set"),
        ("z[(i0*2 + i1)*32, 4] =", "z[(i0*2 + i1)*32] =", "a fragment is stored with a stride"),
        ("for i4 in 3 {", "for i4 in i2 {", "not all threads of a subgroup need"),
        ("r3 > 0.0:f32[8x4]", "r3 > 0.0:f32x32", "with f32x32"),
        ("0.5:f32[8x4]", "0.5:f32[8,4]", "expected rows and columns such as 16x8"),
        ("a0.16x4[i1*128, 4]", "a0.16x4[0, 64]", "a tile of a0"),
    ],
)
def test_what_is_no_fragment_is_refused(old: str, new: str, says: str) -> None:
    assert old in PRODUCT
    with pytest.raises(AlpenglowError, match=says):
        parse_kernel(PRODUCT.replace(old, new, 1).replace("TYPE", "f32"))


@pytest.mark.parametrize(
    ("old", "new", "error", "says"),
    [
        (
            "y.16x4[0, 4]",
            "y.16x4[132, 4]",
            IndexError,
            r"y\[192\] is outside, expected 0 or more and less than 192",
        ),
        ("x.8x16[0, 48]", "x.8x16[i2, 48]", AssertionError, "disagree on where a tile of x is"),
        ("          barrier subgroup\n          r3", "          r3", RaceError,
         r"subgroup 0 reads a0\[0\], which thread 0 wrote"),
        ("y.16x4[0, 4])\n", "y.16x4[0, 4])\n        z[i0*64 + i1*32] = 1.0:f32\n", RaceError,
         r"thread 0 writes z\[0\], which subgroup 0 wrote"),
    ],
)  # fmt: skip
def test_mistakes_are_told(old: str, new: str, error: type[Exception], says: str) -> None:
    case = product()
    text = PRODUCT.replace("TYPE", "f32")
    assert old in text
    with pytest.raises(error, match=says):
        results(case._replace(kernel=parse_kernel(text.replace(old, new, 1))))


def test_threads_have_as_many_elements_each() -> None:
    text = "kernel @k(z: mut f32) subgroup 8 {\nthread t in 8 {\nz[0, 2] = 0.0:f32[2x2]\n}\n}"
    with pytest.raises(KernelError, match=r"f32\[2x2\] of a subgroup of 8 threads"):
        parse_kernel(text)


def test_addresses_of_tiles_are_proved() -> None:
    spans = {n: (number(0), number(s - 1)) for n, s in {"x": 1536, "y": 192, "z": 128}.items()}
    kernel = product().kernel

    assert all(a.proved for a in accesses(kernel, Premises(), spans))
    spans["x"] = number(0), number(1534)
    assert not all(a.proved for a in accesses(kernel, Premises(), spans))
