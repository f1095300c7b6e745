"""No kernel that examples and node tests build touches anything outside of its operands.

The whole sweep, for every width and both numerics, takes `make test-guarded`; a part of it runs
with the other tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError
from alpenglow.bundles import planned
from alpenglow.ir.op import Op
from fuzz import fences, guarded, guarded_c
from fuzz.cc import TARGET
from fuzz.models import draft, sizes
from fuzz.trial import Tally
from node_cases import models
from operator_cases import OPERATORS, UNCOMPILED, applications, every_operator, feeds, forest

Array = NDArray[Any]
Record = Callable[[str, object], None]

pytestmark = pytest.mark.skipif(not fences.SUPPORTED, reason="faults are caught on 64-bit Linux")

SLICES = 16
"""Into how many tests all node tests are dealt out."""

STRIDE = 34
"""Every so many node tests are tried with the other tests."""

LEVELS = ["cpu", "x86-64-v4", "x86-64-v3", "x86-64-v2"]


def examples(cls: type[Op], target: str, numerics: Any) -> Tally:
    """Run all examples of an operator, with and without infinities and NaN."""
    cases = list(applications(cls))
    exe = ag.compile(forest(cases), target, 1, options=ag.Options(numerics=numerics))
    # What NumPy does has no kernel, and may refuse what is not finite.
    specials = (False,) if cls in UNCOMPILED else (False, True)
    with guarded.watching() as tally, np.errstate(all="ignore"):
        for special in specials:
            random = np.random.default_rng(3)
            exe.run(feeds(cases, [a.draw(random, special) for a in cases]))
    return tally


@every_operator
@pytest.mark.sampled(4)
def test_examples(cls: type[Op]) -> None:
    tally = examples(cls, "cpu", "fast")

    assert tally.calls or cls in UNCOMPILED


@pytest.mark.guarded
@pytest.mark.slow
@pytest.mark.parametrize("numerics", ["fast", "strict"])
@pytest.mark.parametrize("target", LEVELS)
def test_examples_at_every_width(target: str, numerics: str, record_property: Record) -> None:
    if not ag.Target.parse(target).is_host_compatible():
        pytest.skip(f"this machine does not run code for {target}")
    tally = Tally()
    for cls in OPERATORS:
        tally.add(examples(cls, target, numerics))
    record_property("tried", str(tally))

    assert len(tally.kernels) > 2000


@pytest.mark.cross
@pytest.mark.parametrize("portable", [True, False], ids=["portable", "vectors"])
@pytest.mark.parametrize("slice_", range(SLICES))
def test_examples_as_c(
    slice_: int, portable: bool, tmp_path: Path, record_property: Record
) -> None:
    forests = [list(applications(cls)) for cls in OPERATORS[slice_::SLICES]]
    programs = [planned(forest(cases), TARGET, ag.Options()) for cases in forests]
    library = guarded_c.library(programs, tmp_path, strict=False, portable=portable)
    tally, random, findings = Tally(), np.random.default_rng(3), []
    for number, cases in enumerate(forests):
        given = feeds(cases, [a.draw(random) for a in cases])
        findings += library.run(number, given, tally)
    record_property("tried", str(tally))

    assert not findings, "\n".join(map(str, findings))
    assert len(tally.kernels) > 50


# ── node tests ──


def made(value: Any) -> Any:
    """Return what a data set holds for an input as what it is fed."""
    match value:
        case onnx.TensorProto():
            return numpy_helper.to_array(value)
        case onnx.SequenceProto():
            return numpy_helper.to_list(value)
        case onnx.OptionalProto():
            return numpy_helper.to_optional(value)
    return value


def fed(test: Any) -> Iterator[tuple[onnx.ModelProto, dict[str, Any]]]:
    """Yield models and feeds of a node test: as it is, and with all inputs constant but one.

    Only constant weights are packed, so that both are needed to see all kernels.
    """
    names = [i.name for i in test.model.graph.input]
    for inputs, _ in test.data_sets:
        given = {n: made(v) for n, v in zip(names, inputs, strict=False)}
        yield test.model, given
        arrays = {n: np.asarray(a) for n, a in list(given.items())[1:] if _is_tensor(a)}
        if arrays:
            yield (
                with_constants(test.model, arrays),
                {n: a for n, a in given.items() if n not in arrays},
            )


def _is_tensor(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind not in "OUS"


def with_constants(model: onnx.ModelProto, arrays: Mapping[str, Array]) -> onnx.ModelProto:
    """Return a model whose inputs of these names are initializers."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = [i for i in copy.graph.input if i.name not in arrays]
    del copy.graph.input[:]
    copy.graph.input.extend(kept)
    copy.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    return copy


def node_tests(tests: list[Any], target: str = "cpu") -> tuple[Tally, list[str]]:
    """Run node tests; return how much that was, and what went wrong."""
    problems = []
    with guarded.watching() as tally, np.errstate(all="ignore"):
        for test in tests:
            for model, given in fed(test):
                try:
                    ag.compile(model, target, 1).run(given)
                except AlpenglowError:  # what cannot be constant, or is not supported
                    continue
                except guarded.Trespass as error:
                    problems.append(f"{test.name}: {error}")
    return tally, problems


def test_a_sample_of_node_tests(record_property: Record) -> None:
    tally, problems = node_tests(models()[::STRIDE])
    record_property("tried", str(tally))

    assert not problems, "\n".join(problems)
    assert len(tally.kernels) > 50


@pytest.mark.slow
@pytest.mark.parametrize("slice_", range(SLICES))
def test_all_node_tests(slice_: int, record_property: Record) -> None:
    tally, problems = node_tests(models()[slice_::SLICES])
    record_property("tried", str(tally))

    assert not problems, "\n".join(problems)
    assert len(tally.kernels) > 50


@pytest.mark.guarded
@pytest.mark.slow
@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v2"])
def test_all_node_tests_at_lesser_widths(target: str, record_property: Record) -> None:
    if not ag.Target.parse(target).is_host_compatible():
        pytest.skip(f"this machine does not run code for {target}")
    tally, problems = node_tests(models(), target)
    record_property("tried", str(tally))

    assert not problems, "\n".join(problems)
    assert len(tally.kernels) > 1000


# ── random models ──


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
def test_random_models(target: str, record_property: Record) -> None:
    problems, ran = [], 0
    with guarded.watching() as tally, np.errstate(all="ignore"):
        for seed in range(7_000_000, 7_000_060):
            d = draft(seed)
            try:
                exe = ag.compile(d.model(), target, 1)
                for given in (d.feeds(), *sizes(d)):
                    exe.run(given)
                    ran += 1
            except AlpenglowError:
                continue
            except guarded.Trespass as error:
                problems.append(f"seed {seed}: {error}")
    record_property("tried", str(tally))

    assert not problems, "\n".join(problems)
    assert ran > 60
