"""StableHLO's own suites: programs that say what they expect.

They are read where `ALPENGLOW_SUITES` says, or in `.models/suites`.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontends.stablehlo.programs import (
    FOLDER,
    checked,
    evaluated,
    failures,
    functions,
    texts,
    with_main,
)

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.types import Array

DATA = sorted(p.stem for p in (FOLDER / "testdata").glob("*.mlir"))
QUANTIZED = sorted(p.stem for p in (FOLDER / "testdata" / "quantized").glob("*.mlir"))
DISTRIBUTED = frozenset(
    ("all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute",
     "collective_reduce", "infeed", "outfeed", "partition_id", "reduce_scatter", "replica_id",
     "send_recv", "probe", "printing", "api_input_arguments")
)  # fmt: skip
"""Files about several devices, and about the program that interprets them."""

INTERPRET = [
    name
    for path in sorted((FOLDER / "tests" / "interpret").rglob("*.mlir"))
    if (name := str(path.relative_to(FOLDER / "tests" / "interpret").with_suffix("")))
    not in DISTRIBUTED
]
COMPLEX = sorted(p.stem for p in (FOLDER / "tests" / "math").glob("*_complex*.mlir"))
MATH = sorted(p.stem for p in (FOLDER / "tests" / "math").glob("[!u]*_float*.mlir"))

REFUSED = {
    "chlo/ragged_dot": "ragged_dot",
    "chlo/scan": "scan",
    "constant": "f8",
    "dot_general": "dtype f8E",
    "atan2": "dtype c",
    "cbrt": "dtype c",
}
"""Files of which programs are refused, and a word of the message."""

KEPT_WIDER = frozenset({"cumsum_bfloat16_8_9"})
"""Programs whose sums of halves we take in f32, and what is expected in halves."""

pytestmark = pytest.mark.skipif(
    not DATA, reason=f"no suite in {FOLDER}: unpack stablehlo.tar.xz into {FOLDER.parent}"
)


def said(name: str, folder: str, compile: bool = False) -> list[str]:
    """Return what does not hold in a file; what is refused must be what is known to be."""
    found = []
    for text in texts(FOLDER / folder / f"{name}.mlir"):
        try:
            for module, function in functions(text):
                found += [f"{function.name}: {f}" for f in failures(module, function, compile)]
        except UnsupportedError as error:
            if name not in REFUSED or REFUSED[name] not in str(error):
                raise
    return found


@pytest.mark.sampled(120)
@pytest.mark.parametrize("name", [n for n in DATA if n not in KEPT_WIDER])
def test_a_program_of_jax_makes_what_is_expected(name: str) -> None:
    assert said(name, "testdata") == []


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [n for n in DATA if n not in KEPT_WIDER])
def test_a_program_of_jax_is_compiled_to_code_that_makes_what_is_expected(name: str) -> None:
    assert said(name, "testdata", compile=True) == []


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", QUANTIZED)
def test_a_quantised_program_makes_what_is_expected(name: str) -> None:
    assert said(name, "testdata/quantized") == []


@pytest.mark.parametrize("name", INTERPRET)
def test_a_program_of_the_reference_interpreter_makes_what_is_expected(name: str) -> None:
    assert said(name, "tests/interpret") == []


@pytest.mark.parametrize("name", MATH)
def test_functions_of_reals_are_right_at_their_limits(name: str) -> None:
    assert said(name, "tests/math") == []


def normal(x: Array) -> Array:
    """Return where both parts are 0, or neither infinite nor too small for all their digits."""
    least = np.finfo(x.dtype).tiny
    sizes = np.abs(x.real), np.abs(x.imag)
    return np.logical_and.reduce([(v == 0) | (np.isfinite(v) & (v >= least)) for v in sizes])


@pytest.mark.parametrize("name", COMPLEX)
def test_functions_of_complex_numbers_are_right_where_all_is_normal(name: str) -> None:
    (text,) = texts(FOLDER / "tests" / "math" / f"{name}.mlir")
    ((module, function),) = functions(text)
    main, _ = checked(function)
    (x,) = evaluated(with_main(module, module.functions["samples"]))
    made, wanted = evaluated(with_main(module, main))

    fits = normal(x) & normal(wanted)
    assert fits.sum() > 20
    close = 16 * np.finfo(x.dtype).eps
    np.testing.assert_allclose(made.real[fits], wanted.real[fits], close)
    np.testing.assert_allclose(made.imag[fits], wanted.imag[fits], close)
